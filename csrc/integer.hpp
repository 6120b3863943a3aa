// What the kernels between integers are asked for, as plain data that every instruction level reads.
//
// Codes are 8-bit where they are multiplied. All sums are exact: they fit into 32 bits, or the
// caller takes another way.
#pragma once

#include <cstdint>

#include "view.hpp"

namespace halfstep {

constexpr int kBlock = 16;  // outputs whose weights lie side by side
constexpr int kStep = 4;    // inputs of one output that lie side by side
constexpr int kChannels = 64;  // of a depthwise convolution, whose weights lie side by side
constexpr int kSpace = 3;   // spatial dimensions; fewer are filled up with ones

// The codes of an operand, all with one scale: (q - zero) * scale.
struct Operand {
    DType dtype = DType::u8;
    float scale = 1;
    std::int32_t zero = 0;
};

// What becomes of a float result: clamped to [lo, hi] and stored as float32, or as the codes
// clamp(rne(y * inverse + zero), qmin, qmax). There the clamp to [lo, hi] is part of qmin and qmax.
struct Finish {
    DType dtype;
    float lo, hi;
    float inverse, zero, qmin, qmax;
};

// How the taps of a convolution move over its input: depth, height, width.
struct Geometry {
    std::int64_t kernel[kSpace] = {1, 1, 1};
    std::int64_t stride[kSpace] = {1, 1, 1};
    std::int64_t padding[kSpace] = {0, 0, 0};
    std::int64_t dilation[kSpace] = {1, 1, 1};
    bool transposed = false;
};

// Weights made ready, and what follows the sum of products:
//
//     y = (float(acc) * x_scale) * scale + bias;  y = fma(residual - zero, scale, y);  finish
//
// Weights: [groups][blocks][steps][kBlock][kStep], of the order (taps, channels) along the summed
// axis, filled up with zeros. The arrays have an entry for each output of each block. For a depthwise
// convolution see depthwise.hpp.
struct Contraction {
    const std::int8_t* weight;
    const std::int32_t* sums;   // of the weights of an output
    const std::int32_t* start;  // -x_zero * sums: what the sums of products start from
    const float* scale;
    const float* bias;  // -0.0 where there is none: it changes no number
    std::int64_t channels;  // of the input, in each group
    std::int64_t outputs;   // in each group
    std::int64_t groups;
    std::int64_t taps;
    std::int32_t weight_zero;
    bool depthwise;
    Operand x;
    Operand residual;
    Finish finish;
    Geometry geometry;
};

// One call: rows of inputs, or a channels-last image, and rows of outputs.
struct Feed {
    const std::uint8_t* x;
    const float* scales;        // one for `rows_per_scale` rows, or null: that of the contraction
    const std::int32_t* zeros;  // beside them
    std::int64_t rows_per_scale;
    const char* residual;  // or null
    char* out;
    std::int64_t rows;
    std::int64_t in[kSpace];
    std::int64_t out_size[kSpace];
};

// Products of pairs of matrices, (rows, inner) and (inner, columns); b has any strides.
struct Pairs {
    const std::uint8_t* a;
    const std::uint8_t* b;
    char* out;
    std::int64_t count, rows, inner, columns;
    std::int64_t b_step, inner_step, column_step;
    Operand b_codes;
};

// A share of a call: rows and blocks of outputs, and memory for a thread alone.
struct Share {
    std::int64_t first_row, last_row;
    std::int64_t first_block, last_block;
    std::uint8_t* scratch;
    std::int64_t chunk;  // rows that the scratch holds
};

// Windows over a channels-last image: for each output place along a dimension the first input, the
// end, and by how much the divisor grows.
struct Windows {
    const std::int64_t* first[kSpace];
    const std::int64_t* end[kSpace];
    const std::int64_t* count[kSpace];
    std::int64_t step[kSpace];
    std::int64_t in[kSpace];
    std::int64_t out_size[kSpace];
    std::int64_t channels;
    float divisor;  // 0: the product of the counts
    bool largest;   // the largest code instead of the mean
    Operand x;
    Finish finish;
};

// Means over the middle of (outer, length, inner) codes.
struct Mean {
    Operand x;
    Finish finish;
    std::int64_t outer, length, inner;
};

// Rows quantized by the range of their own finite values; the scale is NaN for a row with NaN.
struct RowFormat {
    DType dtype;
    std::int32_t qmin, qmax;
    bool symmetric;
};
struct RowsOut {
    std::uint8_t* codes;
    float* scales;
    std::int32_t* zeros;
};

// One time step of a recurrent layer: 4 parts for an LSTM, 3 for a GRU, 1 for tanh alone.
struct Gates {
    const float* xi;      // (rows, parts * size), as hh
    const float* hh;
    const float* before;  // the cell of an LSTM, the hidden state of a GRU
    float* h;
    float* c;  // of an LSTM
    std::int64_t size, parts;
};

// Two operands that meet in a step.
enum class Meeting : std::uint8_t { add, subtract, multiply };

struct Between {
    Meeting meeting;
    Operand a, b;
    Finish finish;
};

}  // namespace halfstep
