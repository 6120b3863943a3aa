// Depthwise convolution: an output channel for each input channel, vectors along the channels.
//
// Four taps of four channels are interleaved, so that the products are those of `dot`. Interleaving
// works on 16 bytes at a time, and the weights lie in the order that it leaves for 64 channels:
//
//     [channels / 64][taps / 4][4 quarters][4 sixteens][4 channels][4 taps]
//
// where a quarter is four of the channels of each sixteen,
//
// which smaller vectors read in parts. The arrays of the outputs are filled up to 64 channels.
#pragma once

#include "contract.hpp"

namespace halfstep {
namespace {

constexpr int kQuarters = 4;
constexpr int kGroupBytes = kChannels * kStep;  // weights of four taps

// Where the taps of a place that meets no padding lie, from the first one, in pixels.
inline void list_offsets(const Contraction& c, const Feed& feed, std::int64_t* offsets) {
    const Geometry& g = c.geometry;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d) {
        for (std::int64_t h = 0; h < g.kernel[1]; ++h) {
            const std::int64_t line =
                (d * g.dilation[0] * feed.in[1] + h * g.dilation[1]) * feed.in[2];
            for (std::int64_t w = 0; w < g.kernel[2]; ++w) *offsets++ = line + w * g.dilation[2];
        }
    }
}

// The number of the first tap's pixel where no tap meets padding, else -1.
inline std::int64_t inner_pixel(const Contraction& c, const Feed& feed, const Place& place) {
    const Geometry& g = c.geometry;
    if (g.transposed) return -1;
    std::int64_t pixel = place.sample;
    for (int dim = 0; dim < kSpace; ++dim) {
        const std::int64_t start = place.along[dim] * g.stride[dim] - g.padding[dim];
        const std::int64_t end = start + (g.kernel[dim] - 1) * g.dilation[dim];
        if (start < 0 || end >= feed.in[dim]) return -1;
        pixel = pixel * feed.in[dim] + start;
    }
    return pixel;
}

#if defined(__SSE2__)
constexpr int kUnit = kLanes * kStep;  // channels of one vector

// Up to kUnit bytes; what is beyond counts as 0 or as anything else that can be read.
inline Vector load_some(const std::uint8_t* from, std::int64_t count) {
#if defined(__AVX512BW__)
    if (count >= kUnit) return load_bytes(from);
    const __mmask64 present = (1ull << count) - 1;
    return _mm512_maskz_loadu_epi8(present, from);
#else
    if (count >= kUnit) return load_bytes(from);
    alignas(64) std::uint8_t bytes[kUnit] = {};
    std::memcpy(bytes, from, static_cast<std::size_t>(count));
    return load_bytes(bytes);
#endif
}

// The sums of up to kUnit channels, by quarters.
inline void sum_quarters(const std::uint8_t* const* pixels, std::int64_t channel,
                         std::int64_t count, const std::int8_t* weight, std::int64_t taps,
                         Vector flip, Vector (&sums)[kQuarters]) {
    for (Vector& sum : sums) sum = no_sums();
    for (std::int64_t tap = 0; tap < taps; tap += kStep, weight += kGroupBytes) {
        Vector x[kStep];
        for (int i = 0; i < kStep; ++i) {
            x[i] = flipped(load_some(pixels[tap + i] + channel, count), flip);
        }
        const Vector a = low8(x[0], x[1]), b = low8(x[2], x[3]);
        const Vector c = high8(x[0], x[1]), d = high8(x[2], x[3]);
        const Vector inputs[kQuarters] = {low16(a, b), high16(a, b), low16(c, d), high16(c, d)};
        for (int q = 0; q < kQuarters; ++q) {
            const Four w = weights_of(load_bytes(weight + q * kChannels));
            sums[q] = dot(sums[q], inputs_of(inputs[q]), w);
        }
    }
}

// The sums of up to kUnit channels, in their order.
inline void sum_taps(const std::uint8_t* const* pixels, std::int64_t channel, std::int64_t count,
                     const std::int8_t* weight, std::int64_t taps, Vector flip,
                     std::int32_t* acc) {
    Vector sums[kQuarters];
    sum_quarters(pixels, channel, count, weight, taps, flip, sums);
    alignas(64) std::int32_t lanes[kQuarters][kLanes];
    for (int q = 0; q < kQuarters; ++q) save(lanes[q], sums[q]);
    for (int lane = 0; lane < kLanes / 4; ++lane) {
        for (int q = 0; q < kQuarters; ++q) {
            std::memcpy(acc + (lane * kQuarters + q) * 4, lanes[q] + lane * 4, 16);
        }
    }
}
#else
constexpr int kUnit = kBlock;

inline void sum_taps(const std::uint8_t* const* pixels, std::int64_t channel, std::int64_t count,
                     const std::int8_t* weight, std::int64_t taps, Vector flip,
                     std::int32_t* acc) {
    for (std::int64_t j = 0; j < kUnit; ++j) acc[j] = 0;
    const std::uint8_t mask = static_cast<std::uint8_t>(flip.value);
    for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int8_t* group = weight + tap / kStep * kGroupBytes + tap % kStep;
        for (std::int64_t j = 0; j < count; ++j) {
            const std::int8_t w = group[j / 4 * kChannels + j % 4 * kStep];
            acc[j] += static_cast<std::uint8_t>(pixels[tap][channel + j] ^ mask) * w;
        }
    }
}
#endif

inline void add_start(const std::int32_t* start, std::int32_t* acc) {
    for (int j = 0; j < kUnit; ++j) acc[j] += start[j];
}

#if defined(__AVX512BW__)
// From quarters of 64 channels to their order, 16 at a time.
inline void finish_quarters(const Vector (&sums)[kQuarters], const Contraction& c, const Feed& feed,
                            const RowTerms& terms, std::int64_t channel, std::int64_t at,
                            std::int64_t count) {
    const Vector a = _mm512_shuffle_i32x4(sums[0], sums[1], 0x44);
    const Vector b = _mm512_shuffle_i32x4(sums[2], sums[3], 0x44);
    const Vector d = _mm512_shuffle_i32x4(sums[0], sums[1], 0xee);
    const Vector e = _mm512_shuffle_i32x4(sums[2], sums[3], 0xee);
    const Vector ordered[kQuarters] = {
        _mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd),
        _mm512_shuffle_i32x4(d, e, 0x88), _mm512_shuffle_i32x4(d, e, 0xdd)};
    for (int q = 0; q < kQuarters && q * kLanes < count; ++q) {
        const std::int64_t output = channel + q * kLanes;
        const Vector start = feed.scales ? no_sums() : load_sums(c.start + output);
        const Vector sum = _mm512_add_epi32(ordered[q], start);
        finish_vector(sum, c, feed, terms, output, at + q * kLanes, count - q * kLanes);
    }
}
#endif

inline void depthwise_place(const Contraction& c, const Feed& feed, const RowTerms& terms,
                            const std::uint8_t* const* pixels, std::int64_t row) {
    const std::int64_t channels = c.groups, taps = (c.taps + kStep - 1) / kStep * kStep;
    const Vector flip = repeat(flip_of(c.x));
    for (std::int64_t channel = 0; channel < channels; channel += kUnit) {
        const std::int64_t count = smaller(kUnit, channels - channel);
        const std::int64_t at = row * channels + channel;
        // A unit of 16 channels or more is a part of each quarter.
        const std::int8_t* weight = c.weight + channel / kChannels * (taps * kChannels) +
                                    channel % kChannels;
#if defined(__AVX512BW__)
        Vector sums[kQuarters];
        sum_quarters(pixels, channel, count, weight, taps, flip, sums);
        finish_quarters(sums, c, feed, terms, channel, at, count);
#else
        alignas(64) std::int32_t acc[kUnit];
        sum_taps(pixels, channel, count, weight, taps, flip, acc);
        if (!feed.scales) add_start(c.start + channel, acc);
        finish_sums<kUnit>(acc, c, feed, terms, channel, at, count);
#endif
    }
}

// The scratch holds a pixel of zeros, the places of the taps, and their offsets.
void depthwise(const Contraction& c, const Feed& feed, const Share& share) {
    const std::int64_t channels = c.groups, taps = (c.taps + kStep - 1) / kStep * kStep;
    std::uint8_t* zeros = share.scratch;
    std::uint8_t* places = zeros + (channels + kChannels - 1) / kChannels * kChannels;
    const std::uint8_t** pixels = reinterpret_cast<const std::uint8_t**>(places);
    std::int64_t* offsets = reinterpret_cast<std::int64_t*>(places) + taps;
    list_offsets(c, feed, offsets);
    for (std::int64_t tap = c.taps; tap < taps; ++tap) pixels[tap] = zeros;
    Place place(feed, share.first_row);
    for (std::int64_t row = share.first_row; row < share.last_row; ++row, place.advance(feed)) {
        const RowTerms terms = terms_of(c, feed, row);
        if (row == share.first_row || feed.scales) {
            std::memset(zeros, zero_code(c, feed, row), static_cast<std::size_t>(channels));
        }
        const std::int64_t first = inner_pixel(c, feed, place);
        if (first >= 0) {
            const std::uint8_t* start = feed.x + first * channels;
            for (std::int64_t t = 0; t < c.taps; ++t) pixels[t] = start + offsets[t] * channels;
        } else {
            for_taps(c, feed, place, [&](std::int64_t tap, std::int64_t pixel) {
                pixels[tap] = pixel < 0 ? zeros : feed.x + pixel * channels;
            });
        }
        depthwise_place(c, feed, terms, pixels, row);
    }
}

}  // namespace
}  // namespace halfstep
