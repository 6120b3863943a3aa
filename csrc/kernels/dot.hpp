// Sums of products of four unsigned and four signed bytes, in as many lanes as a vector has: exact
// in 32 bits at every instruction level. Without VNNI the bytes are widened to 16 bits, since the
// older instruction for bytes saturates.
#pragma once

#include "../integer.hpp"
#include "formula.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace halfstep {
namespace {

#if defined(__AVX512BW__)
using Vector = __m512i;
constexpr int kLanes = 16;
inline Vector no_sums() { return _mm512_setzero_si512(); }
inline Vector load_bytes(const void* from) { return _mm512_loadu_si512(from); }
inline Vector repeat(std::uint32_t bytes) { return _mm512_set1_epi32(static_cast<int>(bytes)); }
inline void save(std::int32_t* to, Vector sums) { _mm512_storeu_si512(to, sums); }
inline Vector flipped(Vector a, Vector flip) { return _mm512_xor_si512(a, flip); }
inline Vector low8(Vector a, Vector b) { return _mm512_unpacklo_epi8(a, b); }
inline Vector high8(Vector a, Vector b) { return _mm512_unpackhi_epi8(a, b); }
inline Vector low16(Vector a, Vector b) { return _mm512_unpacklo_epi16(a, b); }
inline Vector high16(Vector a, Vector b) { return _mm512_unpackhi_epi16(a, b); }
#elif defined(__AVX2__)
using Vector = __m256i;
constexpr int kLanes = 8;
inline Vector no_sums() { return _mm256_setzero_si256(); }
inline Vector load_bytes(const void* from) {
    return _mm256_loadu_si256(static_cast<const Vector*>(from));
}
inline Vector repeat(std::uint32_t bytes) { return _mm256_set1_epi32(static_cast<int>(bytes)); }
inline void save(std::int32_t* to, Vector sums) {
    _mm256_storeu_si256(reinterpret_cast<Vector*>(to), sums);
}
inline Vector flipped(Vector a, Vector flip) { return _mm256_xor_si256(a, flip); }
inline Vector low8(Vector a, Vector b) { return _mm256_unpacklo_epi8(a, b); }
inline Vector high8(Vector a, Vector b) { return _mm256_unpackhi_epi8(a, b); }
inline Vector low16(Vector a, Vector b) { return _mm256_unpacklo_epi16(a, b); }
inline Vector high16(Vector a, Vector b) { return _mm256_unpackhi_epi16(a, b); }
#elif defined(__SSE2__)
using Vector = __m128i;
constexpr int kLanes = 4;
inline Vector no_sums() { return _mm_setzero_si128(); }
inline Vector load_bytes(const void* from) {
    return _mm_loadu_si128(static_cast<const Vector*>(from));
}
inline Vector repeat(std::uint32_t bytes) { return _mm_set1_epi32(static_cast<int>(bytes)); }
inline void save(std::int32_t* to, Vector sums) {
    _mm_storeu_si128(reinterpret_cast<Vector*>(to), sums);
}
inline Vector flipped(Vector a, Vector flip) { return _mm_xor_si128(a, flip); }
inline Vector low8(Vector a, Vector b) { return _mm_unpacklo_epi8(a, b); }
inline Vector high8(Vector a, Vector b) { return _mm_unpackhi_epi8(a, b); }
inline Vector low16(Vector a, Vector b) { return _mm_unpacklo_epi16(a, b); }
inline Vector high16(Vector a, Vector b) { return _mm_unpackhi_epi16(a, b); }
#else
struct Vector {
    std::int32_t value;
};
constexpr int kLanes = 1;
inline Vector no_sums() { return {0}; }
inline Vector load_bytes(const void* from) {
    Vector bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    return bytes;
}
inline Vector repeat(std::uint32_t bytes) { return {static_cast<std::int32_t>(bytes)}; }
inline void save(std::int32_t* to, Vector sums) { *to = sums.value; }
#endif

// Rows and blocks of one tile: what the registers hold.
#if defined(__AVX512VNNI__)
constexpr int kTileRows = 6, kTileBlocks = 4;

struct Four {
    Vector bytes;
};
inline Four weights_of(Vector bytes) { return {bytes}; }
inline Four inputs_of(Vector bytes) { return {bytes}; }
inline Vector dot(Vector sums, Four x, Four w) {
    return _mm512_dpbusd_epi32(sums, x.bytes, w.bytes);
}
#elif defined(__SSE2__)
struct Four {
    Vector even, odd;
};
#if defined(__AVX512BW__)
constexpr int kTileRows = 4, kTileBlocks = 2;
inline Four weights_of(Vector v) {
    return {_mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8), _mm512_srai_epi16(v, 8)};
}
inline Four inputs_of(Vector v) {
    return {_mm512_and_si512(v, _mm512_set1_epi16(255)), _mm512_srli_epi16(v, 8)};
}
inline Vector dot(Vector sums, Four x, Four w) {
    const Vector even = _mm512_madd_epi16(x.even, w.even), odd = _mm512_madd_epi16(x.odd, w.odd);
    return _mm512_add_epi32(sums, _mm512_add_epi32(even, odd));
}
#elif defined(__AVX2__)
constexpr int kTileRows = 3, kTileBlocks = 1;
inline Four weights_of(Vector v) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), _mm256_srai_epi16(v, 8)};
}
inline Four inputs_of(Vector v) {
    return {_mm256_and_si256(v, _mm256_set1_epi16(255)), _mm256_srli_epi16(v, 8)};
}
inline Vector dot(Vector sums, Four x, Four w) {
    const Vector even = _mm256_madd_epi16(x.even, w.even), odd = _mm256_madd_epi16(x.odd, w.odd);
    return _mm256_add_epi32(sums, _mm256_add_epi32(even, odd));
}
#else
constexpr int kTileRows = 2, kTileBlocks = 1;
inline Four weights_of(Vector v) {
    return {_mm_srai_epi16(_mm_slli_epi16(v, 8), 8), _mm_srai_epi16(v, 8)};
}
inline Four inputs_of(Vector v) {
    return {_mm_and_si128(v, _mm_set1_epi16(255)), _mm_srli_epi16(v, 8)};
}
inline Vector dot(Vector sums, Four x, Four w) {
    const Vector even = _mm_madd_epi16(x.even, w.even), odd = _mm_madd_epi16(x.odd, w.odd);
    return _mm_add_epi32(sums, _mm_add_epi32(even, odd));
}
#endif
#else
constexpr int kTileRows = 1, kTileBlocks = 1;
struct Four {
    Vector bytes;
};
inline Four weights_of(Vector bytes) { return {bytes}; }
inline Four inputs_of(Vector bytes) { return {bytes}; }
inline Vector dot(Vector sums, Four x, Four w) {
    std::uint8_t inputs[kStep];
    std::int8_t weights[kStep];
    std::memcpy(inputs, &x, kStep);
    std::memcpy(weights, &w, kStep);
    for (int i = 0; i < kStep; ++i) sums.value += inputs[i] * weights[i];
    return sums;
}
#endif

inline Vector load_sums(const std::int32_t* from) { return load_bytes(from); }

// The sums of R rows of inputs, `row_step` bytes apart, with the weights of B blocks, `block_step`
// apart. `flip` turns signed codes into unsigned ones that are greater by 128. `start` may be null.
template <int R, int B>
HALFSTEP_ALWAYS_INLINE void dot_rows(const std::uint8_t* x, std::int64_t row_step,
                                     const std::int8_t* weight, std::int64_t block_step,
                                     std::int64_t steps, std::uint32_t flip,
                                     const std::int32_t* start,
                                     Vector (&sums)[R][B * kBlock / kLanes]) {
    constexpr int kParts = kBlock / kLanes, kVectors = B * kParts;
    for (int v = 0; v < kVectors; ++v) {
        const Vector first = start ? load_sums(start + v * kLanes) : no_sums();
        for (int r = 0; r < R; ++r) sums[r][v] = first;
    }
    for (std::int64_t k = 0; k < steps; ++k) {
        Four w[kVectors];
        for (int v = 0; v < kVectors; ++v) {
            const std::int8_t* block = weight + (v / kParts) * block_step + k * kBlock * kStep;
            w[v] = weights_of(load_bytes(block + (v % kParts) * kLanes * kStep));
        }
        for (int r = 0; r < R; ++r) {
            std::uint32_t bytes;
            std::memcpy(&bytes, x + r * row_step + k * kStep, sizeof(bytes));
            const Four inputs = inputs_of(repeat(bytes ^ flip));
            for (int v = 0; v < kVectors; ++v) sums[r][v] = dot(sums[r][v], inputs, w[v]);
        }
    }
}

}  // namespace
}  // namespace halfstep
