// What the kernels know of a tensor: where it starts, its element type, its sizes and strides.
#pragma once

#include <cstdint>

namespace halfstep {

constexpr int kMaxDims = 64;  // torch's own limit

enum class DType : std::uint8_t { f16, bf16, f32, f64, i8, u8, i16, u16, i32, boolean };

struct Shape {
    int ndim = 0;
    std::int64_t size[kMaxDims];
};

// A strided tensor; strides count elements, 0 for an expanded dimension.
struct View {
    char* data = nullptr;
    DType dtype = DType::f32;
    Shape shape;
    std::int64_t stride[kMaxDims];
};

// Internal linkage: these are compiled into every instruction level, and the linker must not pick
// one level's copy for all.
namespace {

constexpr int size_of(DType dtype) {
    switch (dtype) {
        case DType::i8:
        case DType::u8:
        case DType::boolean:
            return 1;
        case DType::f16:
        case DType::bf16:
        case DType::i16:
        case DType::u16:
            return 2;
        case DType::f32:
        case DType::i32:
            return 4;
        case DType::f64:
            return 8;
    }
    return 0;
}

constexpr bool is_float(DType dtype) { return dtype <= DType::f64; }

inline std::int64_t count_of(const Shape& shape) {
    std::int64_t product = 1;
    for (int dim = 0; dim < shape.ndim; ++dim) product *= shape.size[dim];
    return product;
}

}  // namespace
}  // namespace halfstep
