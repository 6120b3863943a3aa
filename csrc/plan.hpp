// How a call walks through memory: rows in which every operand advances by one constant step, and
// along a row the pattern of the scale's index. Plain data, since every instruction level reads it.
//
// A dense tensor is a single row whatever its memory format, because dimensions are ordered by the
// output's strides and merged. The scale then moves along the row like an odometer of digits:
//
//     per tensor                       (n, +0)
//     per channel, channels first      (N, +0) (C, +1) (H*W, +0)
//     per channel, channels last       (N*H*W, +0) (C, +1)
//     per group                        (O * groups, +1) (group size, +0)
#pragma once

#include <cstdint>

#include "view.hpp"

namespace halfstep {

constexpr int kMaxOperands = 3;
constexpr std::int64_t kTile = 1024;  // most elements per unit of work: its buffers stay in L1
constexpr std::int64_t kShortRun =
    64;  // below this a run of one scale is too short for its own loop
constexpr std::int64_t kMediumRun = 512;       // below this a table is faster where one is possible
constexpr std::int64_t kLongestTable = 16384;  // periods up to this are written out once per call

// How one stretch of a row finds its scales.
enum class Pattern : std::uint8_t {
    runs,   // long runs of one scale, or of consecutive scales: a loop for each run
    table,  // periodic along the row: one period is written out once per call
    fill,   // short runs without a period: written out for each tile
};

struct Digit {
    std::int64_t size;
    std::int64_t stride;  // in scales
};

struct Dim {
    std::int64_t size;
    std::int64_t step[kMaxOperands];  // in elements
    std::int64_t scale;               // in scales
};

struct Plan {
    std::int64_t count;   // elements
    std::int64_t scales;  // scales
    std::int64_t row;     // elements in a row
    std::int64_t rows;
    std::int64_t period;  // the scales repeat after so many elements of a row (Pattern::table)
    Pattern pattern;
    bool prefetch;  // ask for the next tile's inputs ahead of time
    int operands;
    int outer_count;
    int digit_count;
    std::int64_t step[kMaxOperands];  // inside a row
    Dim outer[kMaxDims];              // between rows, outermost first
    Digit digits[kMaxDims];           // inside a row, outermost first
};

// Plans a walk over operands of one shape; the first one's strides decide the order.
// Throws ArgumentError when shapes differ or the scale's shape does not divide them.
Plan make_plan(const View* const* operands, int count, const Shape& scale);

}  // namespace halfstep
