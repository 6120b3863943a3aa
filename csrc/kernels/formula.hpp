// The formulas of quantization for one element. Each is the plain-PyTorch one in the same order of
// float32 operations, so that results agree in every bit.
#pragma once

#include "memory.hpp"

#if defined(_MSC_VER)
#define HALFSTEP_RESTRICT __restrict
#define HALFSTEP_NOINLINE __declspec(noinline)
#else
#define HALFSTEP_RESTRICT __restrict__
#define HALFSTEP_NOINLINE __attribute__((noinline))
#endif

namespace halfstep {
namespace {

// Round half to even.
inline float rne(float value) {
#if defined(__SSE4_1__)
    return __builtin_rintf(value);
#else
    // Below 2^23, adding 2^23 leaves no fraction bits; above it a float32 is an integer already.
    const std::uint32_t sign = bits_of(value) & 0x80000000u;
    const float magnitude = float_of(bits_of(value) ^ sign);
    const float rounded = (magnitude + 0x1p23f) - 0x1p23f;
    return float_of(bits_of(magnitude < 0x1p23f ? rounded : magnitude) | sign);
#endif
}

template <class Number>
inline Number clamp(Number value, Number lowest, Number highest) {
    value = value < lowest ? lowest : value;
    return value > highest ? highest : value;
}

struct Narrow {
    using Zero = float;
    using Code = float;
    static Code code(float scaled, Zero zero) { return rne(scaled) + zero; }
    static float steps(Code code, Zero zero) { return code - zero; }
};

struct Wide {
    using Zero = std::int32_t;
    using Code = double;
    static Code code(float scaled, Zero zero) { return static_cast<double>(rne(scaled)) + zero; }
    static float steps(Code code, Zero zero) { return static_cast<float>(code - zero); }
};

struct Shifted {
    using Zero = float;
    using Code = float;
    // + 0.0 turns -0.0, which no integer has, into 0.0.
    static Code code(float scaled, Zero zero) { return rne(scaled + zero) + 0.0f; }
    static float steps(Code code, Zero zero) { return code - zero; }
};

// One scale for a whole stretch.
template <class ZeroPoint>
struct One {
    float scale_value;
    ZeroPoint zero_value;
    float scale(std::int64_t) const { return scale_value; }
    ZeroPoint zero(std::int64_t) const { return zero_value; }
};

// A scale for each element.
template <class ZeroPoint>
struct Each {
    const float* scales;
    const ZeroPoint* zeros;
    float scale(std::int64_t i) const { return scales[i]; }
    ZeroPoint zero(std::int64_t i) const { return zeros[i]; }
};

// Calls body(at, length, scales) for the stretches of a tile, scales being One or Each.
template <class Zero, class Body>
inline void for_scales(const Job& job, const Tile& tile, Scratch& scratch, Body body) {
    const Plan& plan = *job.plan;
    const Zero* zero = reinterpret_cast<const Zero*>(job.zero);
    if (plan.pattern == Pattern::runs) {
        for_runs(
            plan, tile,
            [&](std::int64_t at, std::int64_t length, std::int64_t index, std::int64_t stride) {
                if (stride == 0) {
                    body(at, length, One<Zero>{job.scale[index], zero[index]});
                } else {
                    body(at, length, Each<Zero>{job.scale + index, zero + index});
                }
            });
        return;
    }
    Each<Zero> each{scratch.scale, reinterpret_cast<const Zero*>(scratch.zero)};
    if (plan.pattern == Pattern::table) {
        const std::int64_t phase = tile.start % plan.period;
        each = {job.scale_table + phase, reinterpret_cast<const Zero*>(job.zero_table) + phase};
    } else {
        expand(plan, tile, job.scale, job.zero, scratch.scale, scratch.zero);
    }
    body(std::int64_t{0}, tile.length, each);
}

}  // namespace
}  // namespace halfstep
