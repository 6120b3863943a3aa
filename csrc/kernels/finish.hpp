// What comes after a sum: clamp, and codes or floats.
#pragma once

#include "../integer.hpp"
#include "formula.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace halfstep {
namespace {

// Clamping before rounding is the same, since the bounds are whole numbers.
template <class Code>
inline void store_codes(const float* HALFSTEP_RESTRICT y, Code* HALFSTEP_RESTRICT out,
                        std::int64_t length, const Finish& finish) {
    const float inverse = finish.inverse, zero = finish.zero;
    const float qmin = finish.qmin, qmax = finish.qmax;
    for (std::int64_t i = 0; i < length; ++i) {
        const float code = rne(clamp(y[i] * inverse + zero, qmin, qmax));
        out[i] = static_cast<Code>(static_cast<std::int32_t>(code));
    }
}

inline void store_clamped(const float* HALFSTEP_RESTRICT y, float* HALFSTEP_RESTRICT out,
                          std::int64_t length, const Finish& finish) {
    const float lo = finish.lo, hi = finish.hi;
    for (std::int64_t i = 0; i < length; ++i) out[i] = clamp(y[i], lo, hi);
}

// Elements `at` and after of `out`.
inline void store_finished(const float* y, char* out, std::int64_t at, std::int64_t length,
                           const Finish& finish) {
    switch (finish.dtype) {
        case DType::u8:
            return store_codes(y, reinterpret_cast<std::uint8_t*>(out) + at, length, finish);
        case DType::i8:
            return store_codes(y, reinterpret_cast<std::int8_t*>(out) + at, length, finish);
        default:
            return store_clamped(y, reinterpret_cast<float*>(out) + at, length, finish);
    }
}

// Calls body(typed) for codes of 8 bits.
template <class Body>
inline void for_codes(const char* data, DType dtype, Body body) {
    if (dtype == DType::u8) return body(reinterpret_cast<const std::uint8_t*>(data));
    body(reinterpret_cast<const std::int8_t*>(data));
}

// y = (float(acc - x_zero * sum + row_term) * x_scale) * scale + bias; the sums wrap, and what comes
// out fits.
struct RowTerms {
    float scale;
    std::uint32_t zero;
    std::uint32_t term;
};

inline void scale_sums(const std::int32_t* HALFSTEP_RESTRICT acc, const Contraction& c,
                       const RowTerms& row, std::int64_t output, std::int64_t length,
                       float* HALFSTEP_RESTRICT y) {
    const std::int32_t* HALFSTEP_RESTRICT sums = c.sums + output;
    const float* HALFSTEP_RESTRICT scale = c.scale + output;
    const float* HALFSTEP_RESTRICT bias = c.bias + output;
    for (std::int64_t j = 0; j < length; ++j) {
        const std::uint32_t product = row.zero * static_cast<std::uint32_t>(sums[j]);
        const std::uint32_t sum = static_cast<std::uint32_t>(acc[j]) - product + row.term;
        const float exact = static_cast<float>(static_cast<std::int32_t>(sum));
        y[j] = (exact * row.scale) * scale[j] + bias[j];
    }
}

inline void add_residual(const Operand& residual, const char* data, std::int64_t at,
                         std::int64_t length, float* HALFSTEP_RESTRICT y) {
    const float scale = residual.scale;
    const std::int32_t zero = residual.zero;
    for_codes(data, residual.dtype, [=](auto* codes) {
        for (std::int64_t j = 0; j < length; ++j) {
            const std::int32_t steps = static_cast<std::int32_t>(codes[at + j]) - zero;
            y[j] = __builtin_fmaf(static_cast<float>(steps), scale, y[j]);
        }
    });
}

// From the sums of consecutive outputs of a row to what is stored of them, at element `at`: `length`
// of the `Padded` ones. Both are known while compiling where a row does not end in between.
template <int Padded>
inline void finish_sums(const std::int32_t* acc, const Contraction& c, const Feed& feed,
                        const RowTerms& row, std::int64_t output, std::int64_t at,
                        std::int64_t length) {
    alignas(64) float y[Padded];
    scale_sums(acc, c, row, output, Padded, y);
    if (feed.residual) add_residual(c.residual, feed.residual, at, length, y);
    if (length == Padded && c.finish.dtype == DType::u8) {
        return store_codes(y, reinterpret_cast<std::uint8_t*>(feed.out) + at, Padded, c.finish);
    }
    store_finished(y, feed.out, at, length, c.finish);
}

// Signed codes are made unsigned by adding 128.
inline std::uint32_t unsigned_zero(const Operand& x, std::int32_t zero) {
    return static_cast<std::uint32_t>(zero + (x.dtype == DType::i8 ? 128 : 0));
}

inline RowTerms terms_of(const Contraction& c, const Feed& feed, std::int64_t row) {
    if (!feed.scales) return {c.x.scale, 0, 0};
    const std::int64_t at = row / feed.rows_per_scale;
    return {feed.scales[at], unsigned_zero(c.x, feed.zeros[at]), 0};
}

// The code of a zero of row `row`.
inline std::uint8_t zero_code(const Contraction& c, const Feed& feed, std::int64_t row) {
    const std::int32_t zero = feed.scales ? feed.zeros[row / feed.rows_per_scale] : c.x.zero;
    return static_cast<std::uint8_t>(zero);
}

#if defined(__AVX512BW__)
// finish_sums for 16 outputs that are still in a register; row.term is 0.
inline void finish_vector(__m512i sums, const Contraction& c, const Feed& feed, const RowTerms& row,
                          std::int64_t output, std::int64_t at, std::int64_t length) {
    const __mmask16 present = static_cast<__mmask16>(length >= 16 ? 0xffff : (1 << length) - 1);
    if (feed.scales) {
        const __m512i zero = _mm512_set1_epi32(static_cast<int>(row.zero));
        const __m512i shift = _mm512_mullo_epi32(zero, _mm512_loadu_si512(c.sums + output));
        sums = _mm512_sub_epi32(sums, shift);
    }
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(row.scale));
    y = _mm512_mul_ps(y, _mm512_loadu_ps(c.scale + output));
    y = _mm512_add_ps(y, _mm512_loadu_ps(c.bias + output));
    if (feed.residual) {
        const __m128i codes = _mm_maskz_loadu_epi8(present, feed.residual + at);
        const __m512i wide = c.residual.dtype == DType::u8 ? _mm512_cvtepu8_epi32(codes)
                                                           : _mm512_cvtepi8_epi32(codes);
        const __m512i steps = _mm512_sub_epi32(wide, _mm512_set1_epi32(c.residual.zero));
        y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(steps), _mm512_set1_ps(c.residual.scale), y);
    }
    const Finish& f = c.finish;
    if (f.dtype == DType::f32) {
        // Of two zeros and of NaN these keep the second operand, y.
        y = _mm512_min_ps(_mm512_set1_ps(f.hi), _mm512_max_ps(_mm512_set1_ps(f.lo), y));
        return _mm512_mask_storeu_ps(reinterpret_cast<float*>(feed.out) + at, present, y);
    }
    y = _mm512_add_ps(_mm512_mul_ps(y, _mm512_set1_ps(f.inverse)), _mm512_set1_ps(f.zero));
    y = _mm512_min_ps(_mm512_max_ps(y, _mm512_set1_ps(f.qmin)), _mm512_set1_ps(f.qmax));
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m512i codes = _mm512_cvt_roundps_epi32(y, kNearest);
    _mm512_mask_cvtepi32_storeu_epi8(feed.out + at, present, codes);
}
#endif

}  // namespace
}  // namespace halfstep
