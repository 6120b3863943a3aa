// dequantize: x' = (q - zero_point) * scale.
#pragma once

#include "formula.hpp"

namespace halfstep {
namespace {

template <class Rule, class Storage, class Scales>
HALFSTEP_NOINLINE void dequantize_stretch(const Storage* HALFSTEP_RESTRICT codes,
                                          float* HALFSTEP_RESTRICT y, std::int64_t length,
                                          Scales scales) {
    for (std::int64_t i = 0; i < length; ++i) {
        const auto code = static_cast<typename Rule::Code>(codes[i]);
        y[i] = Rule::steps(code, scales.zero(i)) * scales.scale(i);
    }
}

template <class Rule, class Storage>
void dequantize_tiles(const Job& job, std::int64_t first, std::int64_t last) {
    Scratch scratch;
    for_tiles(job, first, last, [&](const Tile& tile) {
        const Storage* codes = reinterpret_cast<const Storage*>(load(job, 1, tile, scratch.raw));
        float* y = float_target(job, 0, tile, scratch.y);
        for_scales<typename Rule::Zero>(
            job, tile, scratch, [&](std::int64_t at, std::int64_t length, auto scales) {
                dequantize_stretch<Rule>(codes + at, y + at, length, scales);
            });
        store_floats(job, 0, tile, y, scratch.out);
    });
    finish_streaming(job);
}

template <class Rule>
void dequantize_by_storage(const Job& job, std::int64_t first, std::int64_t last) {
    switch (job.dtype[1]) {
        case DType::i8:
            return dequantize_tiles<Rule, std::int8_t>(job, first, last);
        case DType::u8:
            return dequantize_tiles<Rule, std::uint8_t>(job, first, last);
        case DType::i16:
            return dequantize_tiles<Rule, std::int16_t>(job, first, last);
        case DType::u16:
            return dequantize_tiles<Rule, std::uint16_t>(job, first, last);
        default:
            return dequantize_tiles<Rule, std::int32_t>(job, first, last);
    }
}

// With a float zero point the code is rounded to float32 first, so it shares the narrow form.
void dequantize(const Job& job, std::int64_t first, std::int64_t last, Partial&) {
    if (job.formula == Formula::wide) return dequantize_by_storage<Wide>(job, first, last);
    dequantize_by_storage<Narrow>(job, first, last);
}

}  // namespace
}  // namespace halfstep
