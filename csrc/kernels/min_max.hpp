// The least and greatest value of the elements that share a scale; NaN is kept once seen.
#pragma once

#include "formula.hpp"

namespace halfstep {
namespace {

constexpr std::int64_t kLanes = 64;  // independent minima and maxima, so that a reduction vectorises

inline float least(float kept, float value) { return (value < kept) | (value != value) ? value : kept; }
inline float greatest(float kept, float value) { return (value > kept) | (value != value) ? value : kept; }

// lo[i], hi[i] take in x[i].
HALFSTEP_NOINLINE void min_max_each(const float* HALFSTEP_RESTRICT x, std::int64_t length,
                                    float* HALFSTEP_RESTRICT lo, float* HALFSTEP_RESTRICT hi) {
    for (std::int64_t i = 0; i < length; ++i) {
        lo[i] = least(lo[i], x[i]);
        hi[i] = greatest(hi[i], x[i]);
    }
}

// lo and hi take in the whole of x.
HALFSTEP_NOINLINE void min_max_one(const float* HALFSTEP_RESTRICT x, std::int64_t length, float& lo, float& hi) {
    if (length >= 2 * kLanes) {
        alignas(64) float lows[kLanes], highs[kLanes];
        for (int k = 0; k < kLanes; ++k) lows[k] = highs[k] = x[k];
        std::int64_t i = kLanes;
        for (; i + kLanes <= length; i += kLanes) {
            for (int k = 0; k < kLanes; ++k) {
                lows[k] = least(lows[k], x[i + k]);
                highs[k] = greatest(highs[k], x[i + k]);
            }
        }
        for (int k = 0; k < kLanes; ++k) {
            lo = least(lo, lows[k]);
            hi = greatest(hi, highs[k]);
        }
        x += i;
        length -= i;
    }
    for (std::int64_t i = 0; i < length; ++i) {
        lo = least(lo, x[i]);
        hi = greatest(hi, x[i]);
    }
}

inline void min_max_runs(const Plan& plan, const Tile& tile, const float* x, Partial& partial) {
    for_runs(plan, tile, [&](std::int64_t at, std::int64_t length, std::int64_t index, std::int64_t stride) {
        if (stride == 0) return min_max_one(x + at, length, partial.lo[index], partial.hi[index]);
        if (stride == 1) return min_max_each(x + at, length, partial.lo + index, partial.hi + index);
        for (std::int64_t j = 0; j < length; ++j) {
            min_max_each(x + at + j, 1, partial.lo + index + j * stride, partial.hi + index + j * stride);
        }
    });
}

void min_max(const Job& job, std::int64_t first, std::int64_t last, Partial& partial) {
    Scratch scratch;
    const Plan& plan = *job.plan;
    for_tiles(plan, first, last, [&](const Tile& tile) {
        const float* x = load_floats(job, 0, tile, scratch.x, scratch.raw);
        if (plan.pattern != Pattern::table) return min_max_runs(plan, tile, x, partial);
        const std::int64_t phase = tile.start % plan.period;
        min_max_each(x, tile.length, partial.lo + phase, partial.hi + phase);
    });
}

}  // namespace
}  // namespace halfstep
