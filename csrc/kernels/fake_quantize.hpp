// fake-quantize: y = dequantize(quantize(x)), the mask of codes that needed no clamping, and the
// straight-through gradient. NaN fails every comparison, so it passes into y and out of the mask.
#pragma once

#include "formula.hpp"

namespace halfstep {
namespace {

template <class Rule, class Scales>
HALFSTEP_NOINLINE void fake_quantize_stretch(const float* HALFSTEP_RESTRICT x,
                                             float* HALFSTEP_RESTRICT y,
                                             std::uint8_t* HALFSTEP_RESTRICT mask,
                                             std::int64_t length, Scales scales, double qmin,
                                             double qmax) {
    using Code = typename Rule::Code;
    const Code lowest = static_cast<Code>(qmin), highest = static_cast<Code>(qmax);
    for (std::int64_t i = 0; i < length; ++i) {
        const Code code = Rule::code(x[i] / scales.scale(i), scales.zero(i));
        mask[i] = (code >= lowest) & (code <= highest);
        y[i] = Rule::steps(clamp(code, lowest, highest), scales.zero(i)) * scales.scale(i);
    }
}

template <class Rule>
void fake_quantize_tiles(const Job& job, std::int64_t first, std::int64_t last) {
    Scratch scratch;
    const int input = job.first_input;
    const bool has_mask = input == 2;
    for_tiles(job, first, last, [&](const Tile& tile) {
        const float* x = load_floats(job, input, tile, scratch.x, scratch.raw);
        float* y = float_target(job, 0, tile, scratch.y);
        char* mask = reinterpret_cast<char*>(scratch.mask);
        if (has_mask) mask = target_of(job, 1, tile, scratch.mask);
        std::uint8_t* inside = reinterpret_cast<std::uint8_t*>(mask);
        for_scales<typename Rule::Zero>(
            job, tile, scratch, [&](std::int64_t at, std::int64_t length, auto scales) {
                fake_quantize_stretch<Rule>(x + at, y + at, inside + at, length, scales, job.qmin,
                                            job.qmax);
            });
        store_floats(job, 0, tile, y, scratch.out);
        if (has_mask) store(job, 1, tile, mask);
    });
    finish_streaming(job);
}

void fake_quantize(const Job& job, std::int64_t first, std::int64_t last, Partial&) {
    if (job.formula == Formula::narrow) return fake_quantize_tiles<Narrow>(job, first, last);
    if (job.formula == Formula::shifted) return fake_quantize_tiles<Shifted>(job, first, last);
    fake_quantize_tiles<Wide>(job, first, last);
}

// Bits are enough here: an element is kept as it is, or becomes 0.
template <class Element>
HALFSTEP_NOINLINE void keep_where(const char* from, const char* mask, char* to,
                                  std::int64_t length) {
    const Element* HALFSTEP_RESTRICT source = reinterpret_cast<const Element*>(from);
    const std::uint8_t* HALFSTEP_RESTRICT inside = reinterpret_cast<const std::uint8_t*>(mask);
    Element* HALFSTEP_RESTRICT target = reinterpret_cast<Element*>(to);
    for (std::int64_t i = 0; i < length; ++i) {
        target[i] = source[i] & static_cast<Element>(-static_cast<Element>(inside[i] != 0));
    }
}

void mask_gradient(const Job& job, std::int64_t first, std::int64_t last, Partial&) {
    Scratch scratch;
    const int size = size_of(job.dtype[0]);
    const auto keep = size == 2   ? keep_where<std::uint16_t>
                      : size == 4 ? keep_where<std::uint32_t>
                                  : keep_where<std::uint64_t>;
    for_tiles(job, first, last, [&](const Tile& tile) {
        const char* gradient = load(job, 1, tile, scratch.raw);
        const char* mask = load(job, 2, tile, reinterpret_cast<char*>(scratch.mask));
        char* written = target_of(job, 0, tile, scratch.out);
        keep(gradient, mask, written, tile.length);
        store(job, 0, tile, written);
    });
    finish_streaming(job);
}

}  // namespace
}  // namespace halfstep
