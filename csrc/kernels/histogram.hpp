// How many values fall into each bin of the fixed grid; the grid is defined in histogram.py.
//
// A bin's place, counted from the bin of zero, is the leading bits of the float less those of the
// window's lower end. The places of a tile are found first, which vectorises, and counted then.
#pragma once

#include "memory.hpp"

namespace halfstep {
namespace {

// The places of x[0 .. length) in the window that starts above `base`.
HALFSTEP_NOINLINE void find_places(const float* HALFSTEP_RESTRICT x, std::int64_t length,
                                   const Grid& grid, std::int32_t base,
                                   std::int32_t* HALFSTEP_RESTRICT places) {
    const int shift = grid.shift;
    const auto half = static_cast<std::int32_t>(grid.half);
    for (std::int64_t i = 0; i < length; ++i) {
        const std::uint32_t bits = bits_of(x[i]);
        std::int32_t place = static_cast<std::int32_t>((bits & 0x7fffffffu) >> shift) - base;
        place = place < 0 ? 0 : place;
        place = place > half ? half : place;
        const auto sign = static_cast<std::int32_t>(bits) >> 31;
        places[i] = (place ^ sign) - sign;
    }
}

void histogram(const Job& job, std::int64_t first, std::int64_t last, Partial& partial) {
    Scratch scratch;
    const Grid& grid = *job.grid;
    auto* places = reinterpret_cast<std::int32_t*>(scratch.zero);
    const std::int64_t bins = 2 * grid.half + 1;
    for_tiles(job, first, last, [&](const Tile& tile) {
        const float* x = load_floats(job, 0, tile, scratch.x, scratch.raw);
        for_runs(*job.plan, tile,
                 [&](std::int64_t at, std::int64_t length, std::int64_t index,
                     std::int64_t stride) {
                     std::int64_t* zero = partial.counts + index * bins + grid.half;
                     if (stride == 0) {
                         find_places(x + at, length, grid, grid.base[index], places);
                         for (std::int64_t j = 0; j < length; ++j) ++zero[places[j]];
                         return;
                     }
                     for (std::int64_t j = 0; j < length; ++j, zero += stride * bins) {
                         find_places(x + at + j, 1, grid, grid.base[index + j * stride], places);
                         ++zero[places[0]];
                     }
                 });
    });
}

}  // namespace
}  // namespace halfstep
