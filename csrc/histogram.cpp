// The call that counts values on the fixed grid.
#include <algorithm>
#include <vector>

#include "call.hpp"
#include "checks.hpp"
#include "errors.hpp"
#include "levels.hpp"
#include "threads.hpp"

namespace halfstep {
namespace {

using Counts = std::vector<std::int64_t>;

// The first thread counts in place. Others pay for clearing and joining counts of their own, so
// they stay few against the elements.
int threads_for(std::int64_t counters, std::int64_t elements, int allowed) {
    const std::int64_t worth = elements / (8 * counters) + 1;
    return static_cast<int>(std::min<std::int64_t>(useful_threads(elements, allowed), worth));
}

}  // namespace

void histogram(std::int64_t* counts, std::int64_t bins, const View& x, const View& base, int shift,
               int threads) {
    require_float(x, "x");
    if (base.dtype != DType::i32) throw ArgumentTypeError("base must be int32: convert it");
    if (bins < 3 || bins % 2 == 0 || shift < 1 || shift > 23) {
        throw ArgumentError(std::to_string(bins) + " bins with a shift of " +
                            std::to_string(shift) + " are no grid: give 2 * half + 1 bins");
    }
    Call call({&x}, base.shape, 0);
    if (call.is_empty()) return;
    const Grid grid{reinterpret_cast<const std::int32_t*>(base.data), bins / 2, shift};
    call.job().grid = &grid;
    const std::int64_t counters = call.plan().scales * bins;
    std::vector<Partial> partials(
        static_cast<std::size_t>(threads_for(counters, call.plan().count, threads)));
    std::vector<Counts> own(partials.size() - 1, Counts(static_cast<std::size_t>(counters)));
    partials[0].counts = counts;
    for (std::size_t k = 1; k < partials.size(); ++k) partials[k].counts = own[k - 1].data();
    run(kernels().histogram, call.job(), partials);
    for (const Counts& found : own) {
        for (std::size_t k = 0; k < found.size(); ++k) counts[k] += found[k];
    }
}

}  // namespace halfstep
