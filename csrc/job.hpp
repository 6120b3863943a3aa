// What one call asks of the kernels of an instruction level, as plain data.
#pragma once

#include <cstdint>

#include "integer.hpp"
#include "plan.hpp"

namespace halfstep {

enum class Formula : std::uint8_t {
    narrow,   // integer zero point, every code exact in float32
    wide,     // integer zero point, sums in float64: 32-bit codes
    shifted,  // float zero point
};

// A zero point as 4 bytes: a float, or an int32 under Formula::wide.
using Cell = std::uint32_t;

// The windows of a histogram; see histogram.py.
struct Grid {
    const std::int32_t* base;  // one for each scale: the leading bits below its lowest bin
    std::int64_t half;         // bins on each side of the one for zero
    int shift;                 // of a float's bits, to leave the leading ones
};

struct Job {
    const Plan* plan;
    char* data[kMaxOperands];
    DType dtype[kMaxOperands];
    int first_input;  // the operands before it are outputs
    Formula formula;
    bool stream;  // write around the caches: the output is larger than they are
    double qmin;
    double qmax;
    const float* scale;        // one for each scale
    const Cell* zero;          // the same
    const float* scale_table;  // Pattern::table: written out for period + kTile elements
    const Cell* zero_table;
    double scale_anchor;  // learnable: adding and subtracting it rounds a term to the summing grid
    double zero_anchor;
    const Grid* grid;  // histogram
    const Between* between;
    const std::uint8_t* table;  // look_up: 256 entries for each index of the scale
};

// What one thread found. The arrays have one entry for each scale, or, under Pattern::table, one
// for each element of a period + kTile. Aligned so that threads do not write to one cache line.
struct alignas(64) Partial {
    bool nan = false;
    std::int32_t* lo = nullptr;  // as order keys
    std::int32_t* hi = nullptr;
    double* scale_sum = nullptr;
    double* zero_sum = nullptr;
    std::int64_t* counts = nullptr;  // for each scale all of its bins
};

// A kernel works on the tiles [first, last) of the plan.
using Kernel = void (*)(const Job& job, std::int64_t first, std::int64_t last, Partial& partial);

// The kernels of one instruction level; the numbers of the operands are those of Job::data.
struct Kernels {
    const char* level;
    Kernel quantize;       // 0: codes out, 1: x
    Kernel dequantize;     // 0: floats out, 1: codes
    Kernel fake_quantize;  // 0: y out, 1: mask out (where present), last: x
    Kernel mask_gradient;  // 0: gradient out, 1: gradient, 2: mask
    Kernel min_max;        // 0: x
    Kernel learnable;      // 0: gradient of x out, 1: x, 2: gradient
    Kernel histogram;      // 0: x
    Kernel between;        // 0: out, 1: a, 2: b
    Kernel requantize;     // 0: out, 1: codes
    Kernel look_up;        // 0: codes out, 1: codes
    void (*contract)(const Contraction& contraction, const Feed& feed, const Share& share);
    void (*depthwise)(const Contraction& contraction, const Feed& feed, const Share& share);
    void (*pool)(const Windows& windows, const char* x, char* out, std::int64_t first,
                 std::int64_t last);
    void (*mean)(const Mean& mean, const char* x, char* out, std::int64_t first,
                 std::int64_t last);
    void (*quantize_rows)(const RowFormat& format, const RowsOut& out, const float* x,
                          std::int64_t length, std::int64_t first, std::int64_t last);
    void (*gates)(const Gates& gates, std::int64_t first, std::int64_t last);
    void (*pack)(const std::uint8_t* codes, std::int64_t count, int bits, std::uint8_t* bytes);
    void (*unpack)(const std::uint8_t* bytes, std::int64_t count, int bits, bool is_signed,
                   std::uint8_t* codes);
};

}  // namespace halfstep
