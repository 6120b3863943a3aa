// Linear layers and convolutions: tiles of sums of products, finished while they are in L1.
#pragma once

#include "dot.hpp"
#include "finish.hpp"

namespace halfstep {
namespace {

inline std::int64_t padded_inner(const Contraction& c) {
    return (c.taps * c.channels + kStep - 1) / kStep * kStep;
}

inline std::int64_t blocks_of(const Contraction& c) { return (c.outputs + kBlock - 1) / kBlock; }

inline std::uint32_t flip_of(const Operand& x) { return x.dtype == DType::i8 ? 0x80808080u : 0u; }

// The input place of a tap along one dimension, or -1 where it meets padding.
inline std::int64_t place_of_tap(const Geometry& g, int dim, std::int64_t out, std::int64_t tap,
                                 std::int64_t size) {
    std::int64_t place;
    if (g.transposed) {
        place = out + g.padding[dim] - tap * g.dilation[dim];
        if (place < 0 || place % g.stride[dim] != 0) return -1;
        place /= g.stride[dim];
    } else {
        place = out * g.stride[dim] - g.padding[dim] + tap * g.dilation[dim];
    }
    return place >= 0 && place < size ? place : -1;
}

// An output place: its sample, and where it lies along each dimension.
struct Place {
    std::int64_t along[kSpace];
    std::int64_t sample;

    Place(const Feed& feed, std::int64_t row) {
        for (int dim = kSpace; dim-- > 0;) {
            along[dim] = row % feed.out_size[dim];
            row /= feed.out_size[dim];
        }
        sample = row;
    }

    void advance(const Feed& feed) {
        for (int dim = kSpace; dim-- > 0;) {
            if (++along[dim] < feed.out_size[dim]) return;
            along[dim] = 0;
        }
        ++sample;
    }
};

// Calls body(tap, pixel) for every tap; pixel is that of the input, or -1.
template <class Body>
inline void for_taps(const Contraction& c, const Feed& feed, const Place& at, Body body) {
    const Geometry& g = c.geometry;
    std::int64_t tap = 0;
    for (std::int64_t d = 0; d < g.kernel[0]; ++d) {
        const std::int64_t depth = place_of_tap(g, 0, at.along[0], d, feed.in[0]);
        for (std::int64_t h = 0; h < g.kernel[1]; ++h) {
            const std::int64_t height = place_of_tap(g, 1, at.along[1], h, feed.in[1]);
            const std::int64_t start =
                ((at.sample * feed.in[0] + depth) * feed.in[1] + height) * feed.in[2];
            for (std::int64_t w = 0; w < g.kernel[2]; ++w, ++tap) {
                const std::int64_t width = place_of_tap(g, 2, at.along[2], w, feed.in[2]);
                body(tap, (depth | height | width) < 0 ? std::int64_t{-1} : start + width);
            }
        }
    }
}

// Copies of the sizes that convolutions have, without a call.
inline void copy_bytes(std::uint8_t* to, const std::uint8_t* from, std::int64_t length) {
    for (; length >= 16; length -= 16, to += 16, from += 16) std::memcpy(to, from, 16);
    if (length & 8) std::memcpy(to, from, 8), to += 8, from += 8;
    if (length & 4) std::memcpy(to, from, 4), to += 4, from += 4;
    for (length &= 3; length > 0; --length) *to++ = *from++;
}

// The inputs of one output place side by side, from anywhere.
inline void gather_taps(const Contraction& c, const Feed& feed, std::int64_t group,
                        const Place& place, std::uint8_t zero, std::uint8_t* to) {
    const std::int64_t pixel_step = c.groups * c.channels;
    const std::uint8_t* from = feed.x + group * c.channels;
    for_taps(c, feed, place, [&](std::int64_t tap, std::int64_t pixel) {
        std::uint8_t* target = to + tap * c.channels;
        if (pixel < 0) {
            std::memset(target, zero, static_cast<std::size_t>(c.channels));
        } else {
            copy_bytes(target, from + pixel * pixel_step, c.channels);
        }
    });
}

// The same where the taps of a line are neighbours in memory: a copy for each line.
inline void gather_lines(const Contraction& c, const Feed& feed, const Place& place,
                         std::uint8_t zero, std::uint8_t* to) {
    const Geometry& g = c.geometry;
    const std::int64_t width = g.kernel[2], bytes = width * c.channels;
    const std::int64_t start = place.along[2] * g.stride[2] - g.padding[2];
    const std::int64_t before = start < 0 ? smaller(-start, width) : 0;
    const std::int64_t after = smaller(width, feed.in[2] - start);
    for (std::int64_t d = 0; d < g.kernel[0]; ++d) {
        const std::int64_t depth = place_of_tap(g, 0, place.along[0], d, feed.in[0]);
        for (std::int64_t h = 0; h < g.kernel[1]; ++h, to += bytes) {
            const std::int64_t height = place_of_tap(g, 1, place.along[1], h, feed.in[1]);
            const bool outside = (depth | height) < 0 || after <= before;
            if (outside || after - before < width) {
                std::memset(to, zero, static_cast<std::size_t>(bytes));
            }
            if (outside) continue;
            const std::int64_t line =
                ((place.sample * feed.in[0] + depth) * feed.in[1] + height) * feed.in[2];
            copy_bytes(to + before * c.channels, feed.x + (line + start + before) * c.channels,
                       (after - before) * c.channels);
        }
    }
}

// The inputs of `count` output places, from number `row` on, each filled up to whole steps.
inline void gather_rows(const Contraction& c, const Feed& feed, std::int64_t group,
                        std::int64_t row, std::int64_t count, std::uint8_t* to) {
    const std::int64_t inner = c.taps * c.channels, step = padded_inner(c);
    const bool in_lines = !c.geometry.transposed && c.geometry.dilation[2] == 1 && c.groups == 1;
    Place place(feed, row);
    for (std::int64_t r = 0; r < count; ++r, to += step, place.advance(feed)) {
        const std::uint8_t zero = zero_code(c, feed, row + r);
        if (in_lines) {
            gather_lines(c, feed, place, zero, to);
        } else {
            gather_taps(c, feed, group, place, zero, to);
        }
        for (std::int64_t k = inner; k < step; ++k) to[k] = 0;
    }
}

// Whether the rows of a call are inputs as they lie in memory.
inline bool is_direct(const Contraction& c) {
    const Geometry& g = c.geometry;
    bool plain = c.taps == 1 && c.groups == 1 && c.channels % kStep == 0 && !g.transposed;
    for (int dim = 0; dim < kSpace; ++dim) plain &= g.stride[dim] == 1 && g.padding[dim] == 0;
    return plain;
}

// What a nonzero zero point of the weights adds to all sums of a row.
inline std::uint32_t weight_term(const Contraction& c, const Feed& feed, const std::uint8_t* x,
                                 std::uint32_t zero) {
    if (c.weight_zero == 0) return 0;
    if (!feed.scales) zero = unsigned_zero(c.x, c.x.zero);
    const std::int64_t inner = c.taps * c.channels;
    const std::uint8_t flip = c.x.dtype == DType::i8 ? 0x80 : 0;
    std::uint32_t sum = 0;
    for (std::int64_t k = 0; k < inner; ++k) sum += static_cast<std::uint8_t>(x[k] ^ flip);
    return static_cast<std::uint32_t>(c.weight_zero) *
           (zero * static_cast<std::uint32_t>(inner) - sum);
}

// Rows side by side in `x`, `row_step` apart, the first of them number `first` of the call.
struct Rows {
    const std::uint8_t* x;
    std::int64_t row_step;
    std::int64_t first;
    std::int64_t count;
    std::int64_t group;
};

template <int R, int B>
HALFSTEP_NOINLINE void finish_tile(const Contraction& c, const Feed& feed, const Rows& rows,
                                   std::int64_t block) {
    const std::int64_t steps = padded_inner(c) / kStep, blocks = blocks_of(c);
    const std::int64_t block_step = steps * kBlock * kStep, index = rows.group * blocks + block;
    constexpr int kVectors = B * kBlock / kLanes;
    Vector sums[R][kVectors];
    dot_rows<R, B>(rows.x, rows.row_step, c.weight + index * block_step, block_step, steps,
                   flip_of(c.x), feed.scales ? nullptr : c.start + index * kBlock, sums);
    const std::int64_t length = smaller(c.outputs - block * kBlock, B * kBlock);
    const std::int64_t row_outputs = c.groups * c.outputs;
    std::int64_t at = rows.first * row_outputs + rows.group * c.outputs + block * kBlock;
#if defined(__AVX512BW__)
    if (c.weight_zero == 0) {
        for (int r = 0; r < R; ++r, at += row_outputs) {
            const RowTerms terms = terms_of(c, feed, rows.first + r);
            for (int v = 0; v < kVectors; ++v) {
                finish_vector(sums[r][v], c, feed, terms, index * kBlock + v * kLanes,
                              at + v * kLanes, length - v * kLanes);
            }
        }
        return;
    }
#endif
    alignas(64) std::int32_t acc[B * kBlock];
    for (int r = 0; r < R; ++r, at += row_outputs) {
        for (int v = 0; v < kVectors; ++v) save(acc + v * kLanes, sums[r][v]);
        RowTerms terms = terms_of(c, feed, rows.first + r);
        terms.term = weight_term(c, feed, rows.x + r * rows.row_step, terms.zero);
        finish_sums<B * kBlock>(acc, c, feed, terms, index * kBlock, at, length);
    }
}

// All rows for B blocks of outputs, so that their weights stay in L1.
template <int R, int B>
inline void finish_rows(const Contraction& c, const Feed& feed, Rows rows, std::int64_t block) {
    for (; rows.count >= R; rows.count -= R, rows.first += R, rows.x += R * rows.row_step) {
        finish_tile<R, B>(c, feed, rows, block);
    }
    if constexpr (R > 1) {
        if (rows.count > 0) finish_rows<R - 1, B>(c, feed, rows, block);
    }
}

inline void finish_blocks(const Contraction& c, const Feed& feed, const Rows& rows,
                          std::int64_t block, std::int64_t last) {
    for (; block + kTileBlocks <= last; block += kTileBlocks) {
        finish_rows<kTileRows, kTileBlocks>(c, feed, rows, block);
    }
    if constexpr (kTileBlocks > 2) {
        for (; block + 2 <= last; block += 2) finish_rows<kTileRows, 2>(c, feed, rows, block);
    }
    for (; block < last; ++block) finish_rows<kTileRows, 1>(c, feed, rows, block);
}

void contract(const Contraction& c, const Feed& feed, const Share& share) {
    const bool direct = is_direct(c);
    const std::int64_t step = direct ? c.channels : padded_inner(c);
    for (std::int64_t group = 0; group < c.groups; ++group) {
        for (std::int64_t row = share.first_row; row < share.last_row; row += share.chunk) {
            const std::int64_t count = smaller(share.chunk, share.last_row - row);
            Rows rows{share.scratch, step, row, count, group};
            if (direct) {
                rows.x = feed.x + row * step;
            } else {
                gather_rows(c, feed, group, row, count, share.scratch);
            }
            finish_blocks(c, feed, rows, share.first_block, share.last_block);
        }
    }
}

}  // namespace
}  // namespace halfstep
