#include "checks.hpp"

#include <algorithm>

#include "errors.hpp"

namespace halfstep {
namespace {

std::string text_of(const QParams& qparams) {
    return "[qmin, qmax] = [" + std::to_string(qparams.qmin) + ", " + std::to_string(qparams.qmax) +
           "]";
}

}  // namespace

void require_float(const View& view, const std::string& name) {
    if (!is_float(view.dtype)) {
        throw ArgumentTypeError(name +
                                " must be float16, bfloat16, float32 or float64: convert it with " +
                                name + ".float()");
    }
}

void require_codes(const View& view, const std::string& name) {
    if (is_float(view.dtype) || view.dtype == DType::boolean) {
        throw ArgumentTypeError(name + " must be int8, uint8, int16, uint16 or int32: convert it");
    }
}

void require_contiguous(const View& view, const std::string& name) {
    const std::int64_t count = count_of(view.shape);
    if (count == 0) return;
    if (!view.data) throw ArgumentError(name + " has no memory of its own: pass a plain tensor");
    std::int64_t expected = 1;
    for (int dim = view.shape.ndim; dim-- > 0;) {
        if (view.shape.size[dim] != 1 && view.stride[dim] != expected) {
            throw ArgumentError(name + " must be contiguous: call contiguous() on it");
        }
        expected *= view.shape.size[dim];
    }
}

void require_same_shape(const View& view, const Shape& shape, const std::string& name) {
    const Shape& own = view.shape;
    if (own.ndim != shape.ndim || !std::equal(own.size, own.size + own.ndim, shape.size)) {
        throw ArgumentError(name + " must have the shape of scale: expand it to that shape");
    }
}

void require_qparams(const QParams& qparams) {
    const View &scale = qparams.scale, &zero = qparams.zero_point;
    if (scale.dtype != DType::f32) {
        throw ArgumentTypeError("scale must be float32: convert it with scale.float()");
    }
    if (zero.dtype != DType::i32 && zero.dtype != DType::f32) {
        throw ArgumentTypeError(
            "zero_point must be int32, or float32 in the float-zero-point form: convert it");
    }
    require_same_shape(zero, scale.shape, "zero_point");
    require_contiguous(scale, "scale");
    require_contiguous(zero, "zero_point");
    if (qparams.qmin > qparams.qmax || qparams.qmin < INT32_MIN || qparams.qmax > INT32_MAX) {
        throw ArgumentError(text_of(qparams) +
                            " is not a range of 32-bit integers: choose qmin < qmax inside it");
    }
}

void require_range(const QParams& qparams, DType dtype) {
    const int bits = 8 * size_of(dtype);
    const bool is_signed = dtype != DType::u8 && dtype != DType::u16;
    const std::int64_t lowest = is_signed ? -(std::int64_t{1} << (bits - 1)) : 0;
    const std::int64_t highest = lowest + (std::int64_t{1} << bits) - 1;
    if (qparams.qmin < lowest || qparams.qmax > highest) {
        throw ArgumentError(text_of(qparams) + " does not fit a dtype that holds [" +
                            std::to_string(lowest) + ", " + std::to_string(highest) +
                            "]: choose bounds inside it or a wider dtype");
    }
}

}  // namespace halfstep
