// Element by element between codes: sums and products of two tensors, a change of scale, a table.
#pragma once

#include "finish.hpp"

namespace halfstep {
namespace {

inline void steps_of(const Operand& operand, const char* codes, std::int64_t length,
                     std::int32_t* HALFSTEP_RESTRICT steps) {
    const std::int32_t zero = operand.zero;
    for_codes(codes, operand.dtype, [=](auto* q) {
        for (std::int64_t i = 0; i < length; ++i) steps[i] = static_cast<std::int32_t>(q[i]) - zero;
    });
}

HALFSTEP_NOINLINE void meet(const Between& between, const std::int32_t* HALFSTEP_RESTRICT a,
                            const std::int32_t* HALFSTEP_RESTRICT b, std::int64_t length,
                            float* HALFSTEP_RESTRICT y) {
    const float a_scale = between.a.scale, b_scale = between.b.scale;
    if (between.meeting == Meeting::multiply) {
        for (std::int64_t i = 0; i < length; ++i) {
            y[i] = (static_cast<float>(a[i] * b[i]) * a_scale) * b_scale;
        }
        return;
    }
    // The difference is the sum with a negative product: the same roundings.
    const float signed_scale = between.meeting == Meeting::add ? b_scale : -b_scale;
    for (std::int64_t i = 0; i < length; ++i) {
        y[i] = static_cast<float>(a[i]) * a_scale + static_cast<float>(b[i]) * signed_scale;
    }
}

void between(const Job& job, std::int64_t first, std::int64_t last, Partial&) {
    Scratch scratch;
    alignas(64) std::int32_t a[kTile], b[kTile];
    const Between& call = *job.between;
    for_tiles(job, first, last, [&](const Tile& tile) {
        steps_of(call.a, load(job, 1, tile, scratch.raw), tile.length, a);
        steps_of(call.b, load(job, 2, tile, scratch.raw), tile.length, b);
        meet(call, a, b, tile.length, scratch.y);
        store_finished(scratch.y, place_of(job, 0, tile), 0, tile.length, call.finish);
    });
}

void requantize(const Job& job, std::int64_t first, std::int64_t last, Partial&) {
    Scratch scratch;
    alignas(64) std::int32_t steps[kTile];
    const Between& call = *job.between;
    for_tiles(job, first, last, [&](const Tile& tile) {
        steps_of(call.a, load(job, 1, tile, scratch.raw), tile.length, steps);
        for (std::int64_t i = 0; i < tile.length; ++i) {
            scratch.y[i] = static_cast<float>(steps[i]) * call.a.scale;
        }
        store_finished(scratch.y, place_of(job, 0, tile), 0, tile.length, call.finish);
    });
}

void look_up(const Job& job, std::int64_t first, std::int64_t last, Partial&) {
    Scratch scratch;
    const std::uint8_t flip = job.dtype[1] == DType::i8 ? 0x80 : 0;
    for_tiles(job, first, last, [&](const Tile& tile) {
        const char* raw = load(job, 1, tile, scratch.raw);
        const std::uint8_t* codes = reinterpret_cast<const std::uint8_t*>(raw);
        std::uint8_t* out = reinterpret_cast<std::uint8_t*>(place_of(job, 0, tile));
        for_runs(*job.plan, tile,
                 [&](std::int64_t at, std::int64_t length, std::int64_t row, std::int64_t stride) {
                     const std::uint8_t* table = job.table + row * 256;
                     for (std::int64_t j = at; j < at + length; ++j, table += stride * 256) {
                         out[j] = table[codes[j] ^ flip];
                     }
                 });
    });
}

}  // namespace
}  // namespace halfstep
