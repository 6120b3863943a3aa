// quantize: q = clamp(rne(x / scale) + zero_point, qmin, qmax), NaN as 0.
#pragma once

#include "formula.hpp"

namespace halfstep {
namespace {

template <class Rule, class Storage, class Scales>
HALFSTEP_NOINLINE bool quantize_stretch(const float* HALFSTEP_RESTRICT x,
                                        Storage* HALFSTEP_RESTRICT codes, std::int64_t length,
                                        Scales scales, double qmin, double qmax) {
    using Code = typename Rule::Code;
    const Code lowest = static_cast<Code>(qmin), highest = static_cast<Code>(qmax);
    std::int32_t nan = 0;
    for (std::int64_t i = 0; i < length; ++i) {
        const bool is_nan = x[i] != x[i];
        nan |= is_nan;
        const float divided = x[i] / scales.scale(i);
        const float scaled = is_nan ? 0.0f : divided;
        const Code code = clamp(Rule::code(scaled, scales.zero(i)), lowest, highest);
        codes[i] = static_cast<Storage>(static_cast<std::int32_t>(code));
    }
    return nan != 0;
}

template <class Rule, class Storage>
void quantize_tiles(const Job& job, std::int64_t first, std::int64_t last, Partial& partial) {
    Scratch scratch;
    for_tiles(job, first, last, [&](const Tile& tile) {
        const float* x = load_floats(job, 1, tile, scratch.x, scratch.raw);
        char* written = target_of(job, 0, tile, scratch.out);
        Storage* codes = reinterpret_cast<Storage*>(written);
        for_scales<typename Rule::Zero>(
            job, tile, scratch, [&](std::int64_t at, std::int64_t length, auto scales) {
                partial.nan |=
                    quantize_stretch<Rule>(x + at, codes + at, length, scales, job.qmin, job.qmax);
            });
        store(job, 0, tile, written);
    });
    finish_streaming(job);
}

template <class Rule>
void quantize_by_storage(const Job& job, std::int64_t first, std::int64_t last, Partial& partial) {
    switch (job.dtype[0]) {
        case DType::i8:
            return quantize_tiles<Rule, std::int8_t>(job, first, last, partial);
        case DType::u8:
            return quantize_tiles<Rule, std::uint8_t>(job, first, last, partial);
        case DType::i16:
            return quantize_tiles<Rule, std::int16_t>(job, first, last, partial);
        case DType::u16:
            return quantize_tiles<Rule, std::uint16_t>(job, first, last, partial);
        default:
            return quantize_tiles<Rule, std::int32_t>(job, first, last, partial);
    }
}

void quantize(const Job& job, std::int64_t first, std::int64_t last, Partial& partial) {
    if (job.formula == Formula::narrow)
        return quantize_by_storage<Narrow>(job, first, last, partial);
    if (job.formula == Formula::shifted)
        return quantize_by_storage<Shifted>(job, first, last, partial);
    quantize_tiles<Wide, std::int32_t>(job, first, last, partial);
}

}  // namespace
}  // namespace halfstep
