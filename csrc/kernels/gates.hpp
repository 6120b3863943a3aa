// The gates of recurrent layers, by the formulas of numerics/activations.py and recurrent.py.
#pragma once

#include "../integer.hpp"
#include "formula.hpp"

namespace halfstep {
namespace {

// e^v = small * power + power for v <= 0; NaN stays NaN in `small`.
struct Exponential {
    float small, power;
};

inline Exponential exponential(float v) {
    constexpr float kLog2E = static_cast<float>(1.4426950408889634);
    constexpr float kHigh = 355.0f / 512.0f;
    constexpr float kLow = static_cast<float>(0.6931471805599453 - 355.0 / 512.0);
    v = v < -87.0f ? -87.0f : v;
    const float n = rne(v * kLog2E);
    const float r = (v - n * kHigh) - n * kLow;
    float series = static_cast<float>(1.0 / 5040.0);
    series = series * r + static_cast<float>(1.0 / 720.0);
    series = series * r + static_cast<float>(1.0 / 120.0);
    series = series * r + static_cast<float>(1.0 / 24.0);
    series = series * r + static_cast<float>(1.0 / 6.0);
    series = series * r + 0.5f;
    const std::int32_t exponent = static_cast<std::int32_t>(n == n ? n : 0.0f) + 127;
    return {(series * r) * r + r, float_of(static_cast<std::uint32_t>(exponent) << 23)};
}

inline float sigmoid(float x) {
    const Exponential e = exponential(-__builtin_fabsf(x));
    const float value = e.small * e.power + e.power;
    return (x < 0 ? value : 1.0f) / (1.0f + value);
}

inline float hyperbolic_tangent(float x) {
    const Exponential e = exponential(-2.0f * __builtin_fabsf(x));
    const float m = e.small * e.power + (e.power - 1.0f);
    return __builtin_copysignf(-m / (2.0f + m), x);
}

HALFSTEP_NOINLINE void lstm_row(const float* HALFSTEP_RESTRICT xi,
                                const float* HALFSTEP_RESTRICT hh,
                                const float* HALFSTEP_RESTRICT before, std::int64_t size,
                                float* HALFSTEP_RESTRICT h, float* HALFSTEP_RESTRICT c) {
    for (std::int64_t j = 0; j < size; ++j) {
        const float in = sigmoid(xi[j] + hh[j]), forget = sigmoid(xi[size + j] + hh[size + j]);
        const float cell = hyperbolic_tangent(xi[2 * size + j] + hh[2 * size + j]);
        const float out = sigmoid(xi[3 * size + j] + hh[3 * size + j]);
        const float after = forget * before[j] + in * cell;
        c[j] = after;
        h[j] = out * hyperbolic_tangent(after);
    }
}

HALFSTEP_NOINLINE void gru_row(const float* HALFSTEP_RESTRICT xi, const float* HALFSTEP_RESTRICT hh,
                               const float* HALFSTEP_RESTRICT before, std::int64_t size,
                               float* HALFSTEP_RESTRICT h) {
    for (std::int64_t j = 0; j < size; ++j) {
        const float reset = sigmoid(xi[j] + hh[j]);
        const float update = sigmoid(xi[size + j] + hh[size + j]);
        const float fresh = hyperbolic_tangent(xi[2 * size + j] + reset * hh[2 * size + j]);
        h[j] = (before[j] - fresh) * update + fresh;
    }
}

HALFSTEP_NOINLINE void tanh_row(const float* HALFSTEP_RESTRICT xi,
                                const float* HALFSTEP_RESTRICT hh, std::int64_t size,
                                float* HALFSTEP_RESTRICT h) {
    for (std::int64_t j = 0; j < size; ++j) h[j] = hyperbolic_tangent(xi[j] + hh[j]);
}

// The rows [first, last).
void gates(const Gates& g, std::int64_t first, std::int64_t last) {
    const std::int64_t size = g.size;
    for (std::int64_t row = first; row < last; ++row) {
        const float* xi = g.xi + row * size * g.parts;
        const float* hh = g.hh + row * size * g.parts;
        if (g.parts == 4) {
            lstm_row(xi, hh, g.before + row * size, size, g.h + row * size, g.c + row * size);
        } else if (g.parts == 3) {
            gru_row(xi, hh, g.before + row * size, size, g.h + row * size);
        } else {
            tanh_row(xi, hh, size, g.h + row * size);
        }
    }
}

}  // namespace
}  // namespace halfstep
