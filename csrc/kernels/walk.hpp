// Walking along a plan: tiles of a row, and the runs of scales inside a tile.
#pragma once

#include "../job.hpp"

namespace halfstep {
namespace {

inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

inline std::int64_t tiles_per_row(const Plan& plan) { return (plan.row + kTile - 1) / kTile; }

// Up to kTile consecutive elements of a row.
struct Tile {
    std::int64_t offset[kMaxOperands];  // of the first element, in elements
    std::int64_t scale;                 // index of the scale at the start of the row
    std::int64_t start;                 // place in the row
    std::int64_t length;
};

inline Tile tile_at(const Plan& plan, std::int64_t number) {
    const std::int64_t per_row = tiles_per_row(plan);
    std::int64_t row = number / per_row;
    Tile tile{{}, 0, (number - row * per_row) * kTile, 0};
    tile.length = smaller(kTile, plan.row - tile.start);
    for (int k = 0; k < plan.operands; ++k) tile.offset[k] = tile.start * plan.step[k];
    for (int d = plan.outer_count; d-- > 0 && row > 0;) {
        const Dim& dim = plan.outer[d];
        const std::int64_t index = row % dim.size;
        row /= dim.size;
        tile.scale += index * dim.scale;
        for (int k = 0; k < plan.operands; ++k) tile.offset[k] += index * dim.step[k];
    }
    return tile;
}

// The tile number `number`, which comes after `tile`: a step along the row where there is one, since
// finding a place from its number costs divisions.
inline Tile tile_after(const Plan& plan, const Tile& tile, std::int64_t number) {
    if (tile.start + kTile >= plan.row) return tile_at(plan, number);
    Tile next = tile;
    next.start += kTile;
    next.length = smaller(kTile, plan.row - next.start);
    for (int k = 0; k < plan.operands; ++k) next.offset[k] += kTile * plan.step[k];
    return next;
}

#if defined(__GNUC__)
#define HALFSTEP_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define HALFSTEP_ALWAYS_INLINE inline
#endif

// Asks for a tile's inputs, so that they are in L2 by the time it is worked on. Always inlined: GCC
// finds a function that only prefetches to be without effect, and drops calls to it.
HALFSTEP_ALWAYS_INLINE void prefetch(const Job& job, const Tile& tile) {
#if defined(__GNUC__)
    for (int k = job.first_input; k < job.plan->operands; ++k) {
        if (job.plan->step[k] != 1) continue;
        const char* start = job.data[k] + tile.offset[k] * size_of(job.dtype[k]);
        const std::int64_t bytes = tile.length * size_of(job.dtype[k]), line = 64;
        for (std::int64_t i = 0; i < bytes; i += line) __builtin_prefetch(start + i, 0, 2);
    }
#else
    (void)job, (void)tile;
#endif
}

// Calls body(tile) for the tiles [first, last).
template <class Body>
inline void for_tiles(const Job& job, std::int64_t first, std::int64_t last, Body body) {
    if (first >= last) return;
    Tile tile = tile_at(*job.plan, first);
    for (std::int64_t number = first + 1; number < last; ++number) {
        const Tile next = tile_after(*job.plan, tile, number);
        if (job.plan->prefetch) prefetch(job, next);
        body(tile);
        tile = next;
    }
    body(tile);
}

// Calls body(tile) for the tiles [first, last), those of one row joined: for kernels that read where
// the elements are, and need no buffers.
template <class Body>
inline void for_stretches(const Job& job, std::int64_t first, std::int64_t last, Body body) {
    const std::int64_t per_row = tiles_per_row(*job.plan);
    while (first < last) {
        Tile tile = tile_at(*job.plan, first);
        const std::int64_t tiles = smaller(last - first, per_row - first % per_row);
        tile.length = smaller(tiles * kTile, job.plan->row - tile.start);
        body(tile);
        first += tiles;
    }
}

// Calls body(at, length, index, stride) for the maximal pieces of a tile in which element at + j
// has the scale index + j * stride. A tile may reach past the row's end where the row is periodic.
template <class Body>
inline void for_runs(const Plan& plan, const Tile& tile, Body body) {
    std::int64_t place[kMaxDims];
    const int last = plan.digit_count - 1;
    std::int64_t rest = tile.start, index = tile.scale;
    for (int d = last; d >= 0; --d) {
        place[d] = rest % plan.digits[d].size;
        rest /= plan.digits[d].size;
        index += place[d] * plan.digits[d].stride;
    }
    const Digit inner = plan.digits[last];
    for (std::int64_t at = 0; at < tile.length;) {
        const std::int64_t length = smaller(inner.size - place[last], tile.length - at);
        body(at, length, index, inner.stride);
        at += length;
        index -= place[last] * inner.stride;
        place[last] = 0;
        for (int d = last - 1; d >= 0; --d) {
            index += plan.digits[d].stride;
            if (++place[d] < plan.digits[d].size) break;
            index -= plan.digits[d].size * plan.digits[d].stride;
            place[d] = 0;
        }
    }
}

// Writes out the scale and zero point of each element of a tile.
inline void expand(const Plan& plan, const Tile& tile, const float* scale, const Cell* zero,
                   float* scales, Cell* zeros) {
    for_runs(plan, tile,
             [=](std::int64_t at, std::int64_t length, std::int64_t index, std::int64_t stride) {
                 for (std::int64_t j = 0; j < length; ++j) {
                     scales[at + j] = scale[index + j * stride];
                     zeros[at + j] = zero[index + j * stride];
                 }
             });
}

}  // namespace
}  // namespace halfstep
