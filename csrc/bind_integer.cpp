// The binding of the calls between integers. What is known before a run is an object; a run passes
// addresses and sizes, since a network at batch 1 has many short calls.
#include <nanobind/stl/array.h>

#include <array>
#include <memory>

#include "bind.hpp"
#include "errors.hpp"
#include "integer_calls.hpp"

namespace nb = nanobind;

namespace halfstep {
namespace {

using Address = std::uintptr_t;
using Sizes = std::array<std::int64_t, kSpace>;

template <class Element>
Element* at(Address address) {
    return reinterpret_cast<Element*>(address);
}

void copy_sizes(const Sizes& from, std::int64_t* to) {
    for (int dim = 0; dim < kSpace; ++dim) to[dim] = from[static_cast<std::size_t>(dim)];
}

Operand make_operand(nb::handle dtype, double scale, int zero) {
    const DType codes = dtype_named(dtype);
    if (codes != DType::u8 && codes != DType::i8) {
        throw ArgumentTypeError("operands of integer kernels are uint8 or int8: convert them");
    }
    return {codes, static_cast<float>(scale), zero};
}

Finish make_finish(nb::handle dtype, double lo, double hi, double inverse, double zero, double qmin,
                   double qmax) {
    const DType out = dtype_named(dtype);
    if (out != DType::u8 && out != DType::i8 && out != DType::f32) {
        throw ArgumentTypeError("integer kernels return uint8, int8 or float32: choose one");
    }
    return {out,
            static_cast<float>(lo),
            static_cast<float>(hi),
            static_cast<float>(inverse),
            static_cast<float>(zero),
            static_cast<float>(qmin),
            static_cast<float>(qmax)};
}

Geometry make_geometry(const Sizes& kernel, const Sizes& stride, const Sizes& padding,
                       const Sizes& dilation, bool transposed) {
    Geometry geometry;
    copy_sizes(kernel, geometry.kernel);
    copy_sizes(stride, geometry.stride);
    copy_sizes(padding, geometry.padding);
    copy_sizes(dilation, geometry.dilation);
    geometry.transposed = transposed;
    return geometry;
}

// `sizes`: channels, outputs, groups. `weights`: the addresses of its five arrays.
Contraction make_contraction(const std::array<Address, 5>& weights, const Sizes& sizes,
                             const Geometry& geometry, bool depthwise, int weight_zero,
                             const Operand& x, const Operand& residual, const Finish& finish) {
    Contraction c;
    c.weight = at<const std::int8_t>(weights[0]);
    c.sums = at<const std::int32_t>(weights[1]);
    c.start = at<const std::int32_t>(weights[2]);
    c.scale = at<const float>(weights[3]);
    c.bias = at<const float>(weights[4]);
    c.channels = sizes[0];
    c.outputs = sizes[1];
    c.groups = sizes[2];
    c.taps = geometry.kernel[0] * geometry.kernel[1] * geometry.kernel[2];
    c.weight_zero = weight_zero;
    c.depthwise = depthwise;
    c.x = x;
    c.residual = residual;
    c.finish = finish;
    c.geometry = geometry;
    return c;
}

// Addresses may be 0: no scales of rows, no residual.
void run_contraction(const Contraction& c, Address x, Address residual, Address out, Address scales,
                     Address zeros, std::int64_t rows_per_scale, std::int64_t samples,
                     const Sizes& in, const Sizes& out_size, int threads) {
    Feed feed;
    feed.x = at<const std::uint8_t>(x);
    feed.scales = at<const float>(scales);
    feed.zeros = at<const std::int32_t>(zeros);
    feed.rows_per_scale = rows_per_scale;
    feed.residual = at<const char>(residual);
    feed.out = at<char>(out);
    copy_sizes(in, feed.in);
    copy_sizes(out_size, feed.out_size);
    feed.rows = samples * out_size[0] * out_size[1] * out_size[2];
    const nb::gil_scoped_release release;
    contract(c, feed, threads);
}

// `addresses`: of a, b and the result; `sizes`: pairs, rows, inner, columns; `steps` of b: from pair
// to pair, along the inner dimension, along the columns.
void run_multiply(const Operand& a, const Operand& b, const Finish& finish,
                  const std::array<Address, 3>& addresses,
                  const std::array<std::int64_t, 4>& sizes, const Sizes& steps, int threads) {
    Contraction c{};
    c.x = a;
    c.finish = finish;
    const Pairs pairs{at<const std::uint8_t>(addresses[0]),
                      at<const std::uint8_t>(addresses[1]),
                      at<char>(addresses[2]),
                      sizes[0],
                      sizes[1],
                      sizes[2],
                      sizes[3],
                      steps[0],
                      steps[1],
                      steps[2],
                      b};
    const nb::gil_scoped_release release;
    multiply(c, pairs, threads);
}

// `places`: for each dimension the addresses of first, end and count.
void run_pool(const Operand& x, const Finish& finish, Address codes, Address out,
              const std::array<std::array<Address, 3>, kSpace>& places, const Sizes& step,
              const Sizes& in, const Sizes& out_size, std::int64_t samples, std::int64_t channels,
              double divisor, bool largest, int threads) {
    Windows windows;
    for (std::size_t dim = 0; dim < kSpace; ++dim) {
        windows.first[dim] = at<const std::int64_t>(places[dim][0]);
        windows.end[dim] = at<const std::int64_t>(places[dim][1]);
        windows.count[dim] = at<const std::int64_t>(places[dim][2]);
    }
    copy_sizes(step, windows.step);
    copy_sizes(in, windows.in);
    copy_sizes(out_size, windows.out_size);
    windows.channels = channels;
    windows.divisor = static_cast<float>(divisor);
    windows.largest = largest;
    windows.x = x;
    windows.finish = finish;
    const nb::gil_scoped_release release;
    pool(windows, at<const char>(codes), at<char>(out), samples, threads);
}

void run_mean(const Operand& x, const Finish& finish, Address codes, Address out,
              const Sizes& sizes, int threads) {
    const nb::gil_scoped_release release;
    mean({x, finish, sizes[0], sizes[1], sizes[2]}, at<const char>(codes), at<char>(out), threads);
}

void run_between(const Between& params, nb::handle out, nb::handle a, nb::handle b, int threads) {
    const View out_view = view_of(out), a_view = view_of(a), b_view = view_of(b);
    const nb::gil_scoped_release release;
    between(params, out_view, a_view, b_view, threads);
}

void run_requantize(const Between& params, nb::handle out, nb::handle codes, int threads) {
    const View out_view = view_of(out), view = view_of(codes);
    const nb::gil_scoped_release release;
    requantize(params, out_view, view, threads);
}

// The rows of the table are those of axis 1; a table of one row serves all.
void run_look_up(nb::handle out, nb::handle codes, Address table, std::int64_t rows, int threads) {
    const View out_view = view_of(out), view = view_of(codes);
    Shape shape = view.shape;
    for (int dim = 0; dim < shape.ndim; ++dim) shape.size[dim] = dim == 1 ? rows : 1;
    const nb::gil_scoped_release release;
    look_up(out_view, view, at<const std::uint8_t>(table), shape, threads);
}

void run_quantize_rows(nb::handle dtype, const std::array<int, 2>& bounds, bool symmetric,
                       Address x, const std::array<Address, 3>& out, std::int64_t rows,
                       std::int64_t length, int threads) {
    const RowFormat format{dtype_named(dtype), bounds[0], bounds[1], symmetric};
    const RowsOut written{at<std::uint8_t>(out[0]), at<float>(out[1]), at<std::int32_t>(out[2])};
    const nb::gil_scoped_release release;
    quantize_rows(format, written, at<const float>(x), rows, length, threads);
}

// `states`: the addresses of xi, hh, before, h and c.
void run_gates(const std::array<Address, 5>& states, std::int64_t rows, std::int64_t size,
               std::int64_t parts, int threads) {
    const Gates step{at<const float>(states[0]),
                     at<const float>(states[1]),
                     at<const float>(states[2]),
                     at<float>(states[3]),
                     at<float>(states[4]),
                     size,
                     parts};
    const nb::gil_scoped_release release;
    gates(step, rows, threads);
}

}  // namespace

void bind_integer(nb::module_& module) {
    nb::class_<Operand>(module, "Operand");
    nb::class_<Finish>(module, "Finish");
    nb::class_<Geometry>(module, "Geometry");
    nb::class_<Between>(module, "Between");
    nb::class_<Contraction>(module, "Contraction").def("run", run_contraction);
    module.def("operand", make_operand);
    module.def("finish", make_finish);
    module.def("geometry", make_geometry);
    module.def("contraction", make_contraction);
    module.def("meeting", [](int kind, const Operand& a, const Operand& b, const Finish& finish) {
        return Between{static_cast<Meeting>(kind), a, b, finish};
    });
    module.def("multiply", run_multiply);
    module.def("pool", run_pool);
    module.def("mean", run_mean);
    module.def("between", run_between);
    module.def("requantize", run_requantize);
    module.def("look_up", run_look_up);
    module.def("quantize_rows", run_quantize_rows);
    module.def("gates", run_gates);
}

}  // namespace halfstep
