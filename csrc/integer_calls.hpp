// The calls between integers, as the binding makes them.
#pragma once

#include "calls.hpp"
#include "integer.hpp"

namespace halfstep {

// Rows or an image through a linear layer or convolution.
void contract(const Contraction& contraction, const Feed& feed, int threads);

// Products of matrices of codes; of the contraction, x, the finish and what is one everywhere count.
void multiply(const Contraction& contraction, const Pairs& pairs, int threads);

// Means or maxima of windows of `samples` channels-last images.
void pool(const Windows& windows, const char* x, char* out, std::int64_t samples, int threads);

void mean(const Mean& mean, const char* x, char* out, int threads);

// a and b are expanded to the shape of out.
void between(const Between& between, const View& out, const View& a, const View& b, int threads);

// Codes of one scale (`between.a`) as codes of another, or as floats.
void requantize(const Between& between, const View& out, const View& codes, int threads);

// out = table[code - lowest], a row of 256 entries for each element of the shape `rows`.
void look_up(const View& out, const View& codes, const std::uint8_t* table, const Shape& rows,
             int threads);

void quantize_rows(const RowFormat& format, const RowsOut& out, const float* x, std::int64_t rows,
                   std::int64_t length, int threads);

void gates(const Gates& gates, std::int64_t rows, int threads);

}  // namespace halfstep
