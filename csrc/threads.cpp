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

int useful_threads(std::int64_t elements, int allowed) {
    static const bool watching = watch_forks();
    if (!watching || is_forked_child) return 1;
    const std::int64_t worth = std::max<std::int64_t>(elements / kElementsPerThread, 1);
    return static_cast<int>(std::min<std::int64_t>(worth, std::max(allowed, 1)));
}

void run(Kernel kernel, const Job& job, std::vector<Partial>& partials) {
    const std::int64_t tiles = job.plan->rows * tiles_per_row(*job.plan);
#if defined(_OPENMP)
    const int wanted = static_cast<int>(partials.size());
    if (wanted > 1) {
#pragma omp parallel num_threads(wanted)
        {
            // There may be fewer threads than asked for.
            const std::int64_t count = omp_get_num_threads(), mine = omp_get_thread_num();
            kernel(job, tiles * mine / count, tiles * (mine + 1) / count,
                   partials[static_cast<std::size_t>(mine)]);
        }
        return;
    }
#endif
    kernel(job, 0, tiles, partials[0]);
}

}  // namespace halfstep
