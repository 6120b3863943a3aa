// The gradients of learnable fake-quantize. With v = x / scale and t = rne(v) + zero_point:
//
//     inside [qmin, qmax]   gradient of x = g    ds = g * (rne(v) - v)            dz = 0
//     t < qmin              0                    ds = g * (qmin - zero_point)     dz = -g * scale
//     t > qmax              0                    ds = g * (qmax - zero_point)     dz = -g * scale
//
// Terms are float32. Adding and subtracting an anchor rounds each to a grid on which every partial
// sum is exact in float64, so the order of the sums, and with it the number of threads, is free.
#pragma once

#include "formula.hpp"

namespace halfstep {
namespace {

struct Bounds {
    float lowest;
    float highest;
    double scale_anchor;
    double zero_anchor;
};

struct Terms {
    float of_x;
    double of_scale;
    double of_zero;
};

inline Terms learnable_terms(float x, float gradient, float scale, float zero,
                             const Bounds& bounds) {
    const float scaled = x / scale, rounded = rne(scaled), code = rounded + zero;
    const bool below = code<bounds.lowest, above = code> bounds.highest;
    const bool inside = (code >= bounds.lowest) & (code <= bounds.highest);
    float slope = rounded - scaled;
    slope = below ? bounds.lowest - zero : slope;
    slope = above ? bounds.highest - zero : slope;
    const float scale_term = x != x ? 0.0f : gradient * slope;
    const float zero_term = below | above ? -gradient * scale : 0.0f;
    return {inside ? gradient : 0.0f, (scale_term + bounds.scale_anchor) - bounds.scale_anchor,
            (zero_term + bounds.zero_anchor) - bounds.zero_anchor};
}

constexpr std::int64_t kSums = 32;  // independent sums, so that a reduction vectorises

template <class Scales>
HALFSTEP_NOINLINE void learnable_one(const float* HALFSTEP_RESTRICT x,
                                     const float* HALFSTEP_RESTRICT gradient,
                                     float* HALFSTEP_RESTRICT out, std::int64_t length,
                                     Scales scales, const Bounds bounds, double& scale_sum,
                                     double& zero_sum) {
    double scale_sums[kSums] = {}, zero_sums[kSums] = {};
    std::int64_t i = 0;
    for (; i + kSums <= length; i += kSums) {
        for (int k = 0; k < kSums; ++k) {
            const Terms terms = learnable_terms(x[i + k], gradient[i + k], scales.scale(i + k),
                                                scales.zero(i + k), bounds);
            out[i + k] = terms.of_x;
            scale_sums[k] += terms.of_scale;
            zero_sums[k] += terms.of_zero;
        }
    }
    for (int k = 0; i + k < length; ++k) {
        const Terms terms = learnable_terms(x[i + k], gradient[i + k], scales.scale(i + k),
                                            scales.zero(i + k), bounds);
        out[i + k] = terms.of_x;
        scale_sums[k] += terms.of_scale;
        zero_sums[k] += terms.of_zero;
    }
    for (int k = 0; k < kSums; ++k) {
        scale_sum += scale_sums[k];
        zero_sum += zero_sums[k];
    }
}

// Element i adds to the sums number i.
template <class Scales>
HALFSTEP_NOINLINE void learnable_each(const float* HALFSTEP_RESTRICT x,
                                      const float* HALFSTEP_RESTRICT gradient,
                                      float* HALFSTEP_RESTRICT out, std::int64_t length,
                                      Scales scales, const Bounds bounds,
                                      double* HALFSTEP_RESTRICT scale_sums,
                                      double* HALFSTEP_RESTRICT zero_sums) {
    for (std::int64_t i = 0; i < length; ++i) {
        const Terms terms =
            learnable_terms(x[i], gradient[i], scales.scale(i), scales.zero(i), bounds);
        out[i] = terms.of_x;
        scale_sums[i] += terms.of_scale;
        zero_sums[i] += terms.of_zero;
    }
}

inline void learnable_runs(const Job& job, const Tile& tile, const float* x, const float* gradient,
                           float* out, const Bounds& bounds, Partial& partial) {
    const float* zero = reinterpret_cast<const float*>(job.zero);
    for_runs(*job.plan, tile,
             [&](std::int64_t at, std::int64_t length, std::int64_t index, std::int64_t stride) {
                 double *scale_sum = partial.scale_sum + index,
                        *zero_sum = partial.zero_sum + index;
                 if (stride == 0) {
                     const One<float> one{job.scale[index], zero[index]};
                     return learnable_one(x + at, gradient + at, out + at, length, one, bounds,
                                          *scale_sum, *zero_sum);
                 }
                 const std::int64_t piece = stride == 1 ? length : 1;
                 for (std::int64_t j = 0; j < length; j += piece) {
                     const std::int64_t skip = j * stride;
                     const Each<float> each{job.scale + index + skip, zero + index + skip};
                     learnable_each(x + at + j, gradient + at + j, out + at + j, piece, each,
                                    bounds, scale_sum + skip, zero_sum + skip);
                 }
             });
}

void learnable(const Job& job, std::int64_t first, std::int64_t last, Partial& partial) {
    Scratch scratch;
    const Plan& plan = *job.plan;
    const Bounds bounds{static_cast<float>(job.qmin), static_cast<float>(job.qmax),
                        job.scale_anchor, job.zero_anchor};
    for_tiles(job, first, last, [&](const Tile& tile) {
        const float* x = load_floats(job, 1, tile, scratch.x, scratch.raw);
        const float* gradient = load_floats(job, 2, tile, scratch.scale, scratch.raw);
        float* out = float_target(job, 0, tile, scratch.y);
        if (plan.pattern == Pattern::table) {
            const std::int64_t phase = tile.start % plan.period;
            const Each<float> each{job.scale_table + phase,
                                   reinterpret_cast<const float*>(job.zero_table) + phase};
            learnable_each(x, gradient, out, tile.length, each, bounds, partial.scale_sum + phase,
                           partial.zero_sum + phase);
        } else {
            learnable_runs(job, tile, x, gradient, out, bounds, partial);
        }
        store_floats(job, 0, tile, out, scratch.out);
    });
    finish_streaming(job);
}

}  // namespace
}  // namespace halfstep
