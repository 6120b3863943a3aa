// The Python module: reads torch tensors through their Python attributes, so that nothing links
// against torch and one build serves every version of it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "levels.hpp"

namespace nb = nanobind;

namespace halfstep {
namespace {

// Names and dtypes of torch, looked up once and kept for the life of the process.
struct Torch {
    nb::object data_ptr, dtype, is_cpu, shape, stride, dtypes[10];

    Torch() {
        const nb::module_ torch = nb::module_::import_("torch");
        const char* names[] = {"float16", "bfloat16", "float32", "float64", "int8",
                               "uint8",   "int16",    "uint16",  "int32",   "bool"};
        for (int k = 0; k < 10; ++k) dtypes[k] = torch.attr(names[k]);
        data_ptr = nb::str("data_ptr");
        dtype = nb::str("dtype");
        is_cpu = nb::str("is_cpu");
        shape = nb::str("shape");
        stride = nb::str("stride");
    }
};

const Torch& torch_names() {
    static const Torch* names = new Torch();
    return *names;
}

int read_numbers(const nb::object& numbers, std::int64_t* out) {
    const nb::tuple tuple = nb::borrow<nb::tuple>(numbers);
    if (tuple.size() > kMaxDims) throw ArgumentError("more than 64 dimensions: flatten some");
    for (std::size_t k = 0; k < tuple.size(); ++k) out[k] = nb::cast<std::int64_t>(tuple[k]);
    return static_cast<int>(tuple.size());
}

}  // namespace

DType dtype_named(nb::handle dtype) {
    const Torch& torch = torch_names();
    for (int k = 0; k < 10; ++k) {
        if (dtype.is(torch.dtypes[k])) return static_cast<DType>(k);
    }
    throw ArgumentTypeError(
        std::string("dtype ") + nb::str(dtype).c_str() +
        " is not supported: use a float tensor of 16, 32 or 64 bits, or integers of 8, 16 or 32");
}

View view_of(nb::handle tensor) {
    const Torch& torch = torch_names();
    if (!nb::cast<bool>(tensor.attr(torch.is_cpu))) {
        throw ArgumentError("a tensor outside the CPU's memory: call cpu() on it");
    }
    View view;
    view.data = reinterpret_cast<char*>(nb::cast<std::uintptr_t>(tensor.attr(torch.data_ptr)()));
    view.dtype = dtype_named(tensor.attr(torch.dtype));
    view.shape.ndim = read_numbers(tensor.attr(torch.shape), view.shape.size);
    if (read_numbers(tensor.attr(torch.stride)(), view.stride) != view.shape.ndim) {
        throw ArgumentError("a tensor whose strides do not match its sizes: pass a plain one");
    }
    return view;
}

namespace {

QParams qparams_of(nb::handle scale, nb::handle zero_point, std::int64_t qmin, std::int64_t qmax) {
    return {view_of(scale), view_of(zero_point), qmin, qmax};
}

bool bind_quantize(nb::handle codes, nb::handle x, nb::handle scale, nb::handle zero_point,
                   std::int64_t qmin, std::int64_t qmax, int threads) {
    const View codes_view = view_of(codes), x_view = view_of(x);
    const QParams qparams = qparams_of(scale, zero_point, qmin, qmax);
    const nb::gil_scoped_release release;
    return quantize(codes_view, x_view, qparams, threads);
}

void bind_dequantize(nb::handle y, nb::handle codes, nb::handle scale, nb::handle zero_point,
                     int threads) {
    const View y_view = view_of(y), codes_view = view_of(codes);
    const QParams qparams = qparams_of(scale, zero_point, 0, 0);
    const nb::gil_scoped_release release;
    dequantize(y_view, codes_view, qparams, threads);
}

void bind_fake_quantize(nb::handle y, nb::handle mask, nb::handle x, nb::handle scale,
                        nb::handle zero_point, std::int64_t qmin, std::int64_t qmax, int threads) {
    const View y_view = view_of(y), x_view = view_of(x),
               mask_view = mask.is_none() ? View{} : view_of(mask);
    const QParams qparams = qparams_of(scale, zero_point, qmin, qmax);
    const View* mask_or_null = mask.is_none() ? nullptr : &mask_view;
    const nb::gil_scoped_release release;
    fake_quantize(y_view, mask_or_null, x_view, qparams, threads);
}

void bind_mask_gradient(nb::handle out, nb::handle gradient, nb::handle mask, int threads) {
    const View out_view = view_of(out), gradient_view = view_of(gradient),
               mask_view = view_of(mask);
    const nb::gil_scoped_release release;
    mask_gradient(out_view, gradient_view, mask_view, threads);
}

void bind_min_max(nb::handle lo, nb::handle hi, nb::handle x, int threads) {
    const View lo_view = view_of(lo), hi_view = view_of(hi), x_view = view_of(x);
    const nb::gil_scoped_release release;
    min_max(lo_view, hi_view, x_view, threads);
}

// torch's int64 tensors are no operands of the kernels, so counts come as an address.
void bind_histogram(std::uintptr_t counts, std::int64_t bins, nb::handle x, nb::handle base,
                    int shift, int threads) {
    const View x_view = view_of(x), base_view = view_of(base);
    const nb::gil_scoped_release release;
    histogram(reinterpret_cast<std::int64_t*>(counts), bins, x_view, base_view, shift, threads);
}

void bind_learnable_backward(nb::handle out, nb::handle scale_gradient, nb::handle zero_gradient,
                             nb::handle gradient, nb::handle x, nb::handle scale,
                             nb::handle zero_point, std::int64_t qmin, std::int64_t qmax,
                             double factor, int threads) {
    const View out_view = view_of(out), scale_view = view_of(scale_gradient),
               zero_view = view_of(zero_gradient);
    const View gradient_view = view_of(gradient), x_view = view_of(x);
    const QParams qparams = qparams_of(scale, zero_point, qmin, qmax);
    const nb::gil_scoped_release release;
    learnable_backward(out_view, scale_view, zero_view, gradient_view, x_view, qparams,
                       static_cast<float>(factor), threads);
}

void bind_pack(nb::handle bytes, nb::handle codes, int bits) {
    const View bytes_view = view_of(bytes), codes_view = view_of(codes);
    const nb::gil_scoped_release release;
    pack(bytes_view, codes_view, bits);
}

void bind_unpack(nb::handle codes, nb::handle bytes, int bits, bool is_signed) {
    const View codes_view = view_of(codes), bytes_view = view_of(bytes);
    const nb::gil_scoped_release release;
    unpack(codes_view, bytes_view, bits, is_signed);
}

nb::tuple level_names() {
    nb::list names;
    for (const Kernels* level : levels()) names.append(level->level);
    return nb::tuple(names);
}

// Raises the errors of halfstep.errors, so that callers see one family.
void raise_as_halfstep(const std::exception_ptr& thrown, void*) {
    const char* name = nullptr;
    std::string text;
    try {
        std::rethrow_exception(thrown);
    } catch (const ArgumentError& error) {
        name = "ArgumentError";
        text = error.what();
    } catch (const ArgumentTypeError& error) {
        name = "ArgumentTypeError";
        text = error.what();
    }
    const nb::object type = nb::module_::import_("halfstep.errors").attr(name);
    PyErr_SetString(type.ptr(), text.c_str());
}

}  // namespace
}  // namespace halfstep

NB_MODULE(_native, module) {
    using namespace halfstep;
    nb::register_exception_translator(raise_as_halfstep);
    torch_names();
    nb::set_leak_warnings(false);  // plans may outlive the module at exit
    module.doc() = "Native CPU kernels; halfstep.numerics.native is the way to call them.";
    module.def("quantize", bind_quantize);
    module.def("dequantize", bind_dequantize);
    module.def("fake_quantize", bind_fake_quantize, nb::arg("y"), nb::arg("mask").none(),
               nb::arg("x"), nb::arg("scale"), nb::arg("zero_point"), nb::arg("qmin"),
               nb::arg("qmax"), nb::arg("threads"));
    module.def("mask_gradient", bind_mask_gradient);
    module.def("min_max", bind_min_max);
    module.def("histogram", bind_histogram);
    module.def("learnable_backward", bind_learnable_backward);
    module.def("pack", bind_pack);
    module.def("unpack", bind_unpack);
    bind_integer(module);
    module.def("level", [] { return kernels().level; });
    module.def("levels", level_names);
    module.def("use_level", use_level);
}
