#include "threads.hpp"

#include <algorithm>
#include <atomic>

#include "kernels/walk.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace halfstep {
namespace {

constexpr std::int64_t kElementsPerThread = 16384;  // fewer do not pay for waking a thread

std::atomic<bool> is_forked_child{false};

// A forked child has none of its parent's OpenMP threads, and waiting for them would never end.
bool watch_forks() {
#if defined(__unix__) || defined(__APPLE__)
    pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; });
#endif
    return true;
}

}  // namespace

int threads_for_work(std::int64_t work, std::int64_t least, int allowed) {
    static const bool watching = watch_forks();
    if (!watching || is_forked_child) return 1;
    const std::int64_t worth = std::max<std::int64_t>(work / least, 1);
    return static_cast<int>(std::min<std::int64_t>(worth, std::max(allowed, 1)));
}

int useful_threads(std::int64_t elements, int allowed) {
    return threads_for_work(elements, kElementsPerThread, allowed);
}

void run_parts(int threads, const std::function<void(std::int64_t, std::int64_t)>& body) {
#if defined(_OPENMP)
    if (threads > 1) {
        // There may be fewer threads than asked for.
#pragma omp parallel num_threads(threads)
        body(omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    body(0, 1);
}

void run(Kernel kernel, const Job& job, std::vector<Partial>& partials) {
    const std::int64_t tiles = job.plan->rows * tiles_per_row(*job.plan);
    run_parts(static_cast<int>(partials.size()), [&](std::int64_t part, std::int64_t parts) {
        kernel(job, tiles * part / parts, tiles * (part + 1) / parts,
               partials[static_cast<std::size_t>(part)]);
    });
}

}  // namespace halfstep
