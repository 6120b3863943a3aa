// What is checked of a call before any memory is touched. Each throws ArgumentError or
// ArgumentTypeError with what was given and what to do.
#pragma once

#include <string>

#include "calls.hpp"

namespace halfstep {

void require_float(const View& view, const std::string& name);

// Integers that can be codes: 8, 16 or 32 bits.
void require_codes(const View& view, const std::string& name);

// Memory of its own, without gaps, in row-major order.
void require_contiguous(const View& view, const std::string& name);

void require_same_shape(const View& view, const Shape& shape, const std::string& name);

// dtypes, shapes and memory of scale and zero point, and bounds of at most 32 bits.
void require_qparams(const QParams& qparams);

// Bounds that the dtype of the codes can hold.
void require_range(const QParams& qparams, DType dtype);

}  // namespace halfstep
