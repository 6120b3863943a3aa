// The least and greatest value of the elements that share a scale.
//
// Floats are compared as order keys: integers in the order of the floats, with NaN beyond the
// infinities. So minima and maxima are plain integer reductions, which vectorise, and NaN stays
// once seen.
#pragma once

#include "formula.hpp"
#include "order_key.hpp"

namespace halfstep {
namespace {

inline Key lesser(Key a, Key b) { return a < b ? a : b; }
inline Key greater(Key a, Key b) { return a > b ? a : b; }

// lo[i] and hi[i] take in x[i].
HALFSTEP_NOINLINE void min_max_each(const float* HALFSTEP_RESTRICT x, std::int64_t length,
                                    Key* HALFSTEP_RESTRICT lo, Key* HALFSTEP_RESTRICT hi) {
    for (std::int64_t i = 0; i < length; ++i) {
        const Key key = key_of(bits_of(x[i]));
        lo[i] = lesser(lo[i], key);
        hi[i] = greater(hi[i], key);
    }
}

// lo and hi take in the whole of x.
HALFSTEP_NOINLINE void min_max_one(const float* HALFSTEP_RESTRICT x, std::int64_t length, Key& lo,
                                   Key& hi) {
    Key least = lo, most = hi;
    for (std::int64_t i = 0; i < length; ++i) {
        const Key key = key_of(bits_of(x[i]));
        least = lesser(least, key);
        most = greater(most, key);
    }
    lo = least;
    hi = most;
}

inline void min_max_runs(const Plan& plan, const Tile& tile, const float* x, Partial& partial) {
    for_runs(plan, tile,
             [&](std::int64_t at, std::int64_t length, std::int64_t index, std::int64_t stride) {
                 if (stride == 0)
                     return min_max_one(x + at, length, partial.lo[index], partial.hi[index]);
                 const std::int64_t piece = stride == 1 ? length : 1;
                 for (std::int64_t j = 0; j < length; j += piece) {
                     min_max_each(x + at + j, piece, partial.lo + index + j * stride,
                                  partial.hi + index + j * stride);
                 }
             });
}

void min_max(const Job& job, std::int64_t first, std::int64_t last, Partial& partial) {
    const Plan& plan = *job.plan;
    const bool in_place = job.dtype[0] == DType::f32 && plan.step[0] == 1;
    if (in_place && plan.pattern == Pattern::runs && !plan.prefetch) {
        for_stretches(job, first, last, [&](const Tile& tile) {
            const float* x = reinterpret_cast<const float*>(place_of(job, 0, tile));
            min_max_runs(plan, tile, x, partial);
        });
        return;
    }
    Scratch scratch;
    for_tiles(job, first, last, [&](const Tile& tile) {
        const float* x = load_floats(job, 0, tile, scratch.x, scratch.raw);
        if (plan.pattern != Pattern::table) return min_max_runs(plan, tile, x, partial);
        const std::int64_t phase = tile.start % plan.period;
        min_max_each(x, tile.length, partial.lo + phase, partial.hi + phase);
    });
}

}  // namespace
}  // namespace halfstep
