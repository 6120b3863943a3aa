// float16, bfloat16 and float64 to float32 and back, rounding half to even.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace halfstep {
namespace {

inline std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

struct BFloat16 {
    std::uint16_t bits;
};

struct Float16 {
    std::uint16_t bits;
};

inline float to_float(BFloat16 value) {
    return float_of(static_cast<std::uint32_t>(value.bits) << 16);
}
inline float to_float(double value) { return static_cast<float>(value); }

inline float to_float(Float16 value) {
    const std::uint32_t magnitude = value.bits & 0x7fffu;
    // Moves the exponent by 2^112, the difference of the biases; subnormals come out right as well.
    const std::uint32_t finite = bits_of(float_of(magnitude << 13) * 0x1p112f);
    const std::uint32_t special = magnitude << 13 | 0x7f800000u;
    const std::uint32_t sign = (value.bits & 0x8000u) << 16;
    return float_of(sign | (magnitude >= 0x7c00u ? special : finite));
}

inline void from_float(float value, double& out) { out = value; }

inline void from_float(float value, BFloat16& out) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    out.bits = static_cast<std::uint16_t>(value != value ? 0x7fc0u : rounded);
}

inline void from_float(float value, Float16& out) {
    const std::uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
    // Rebias by -112 and round the 13 bits that go; a carry moves up into the exponent.
    const std::uint32_t normal = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;
    // Adding 0.5 leaves the subnormal's steps of 2^-24 in the low bits, rounded by the addition.
    const std::uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const std::uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
    const std::uint32_t result = magnitude >= 0x47800000u ? special : finite;
    out.bits = static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000u));
}

template <class From>
inline void to_floats(const From* from, float* to, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) to[i] = to_float(from[i]);
}

template <class To>
inline void from_floats(const float* from, To* to, std::int64_t length) {
    for (std::int64_t i = 0; i < length; ++i) from_float(from[i], to[i]);
}

#if defined(__F16C__)
inline void to_floats(const Float16* from, float* to, std::int64_t length) {
    std::int64_t i = 0;
    for (; i + 8 <= length; i += 8) {
        const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
    }
    for (; i < length; ++i) to[i] = to_float(from[i]);
}

inline void from_floats(const float* from, Float16* to, std::int64_t length) {
    std::int64_t i = 0;
    for (; i + 8 <= length; i += 8) {
        const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
    }
    for (; i < length; ++i) from_float(from[i], to[i]);
}
#endif

}  // namespace
}  // namespace halfstep
