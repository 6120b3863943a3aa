#include "call.hpp"

#include <algorithm>
#include <cstring>

#include "errors.hpp"
#include "kernels/walk.hpp"

namespace halfstep {
namespace {

// Larger outputs do not stay in the caches anyway, and writing around them saves reading their lines.
constexpr std::int64_t kStreamedBytes = 8 << 20;

constexpr std::int64_t kExactInFloat32 = 1 << 22;  // |q - zero_point| up to twice this has no rounding
constexpr std::int64_t kNarrowest = -65536;        // beyond these bounds a float32 sum may round a code
constexpr std::int64_t kWidest = 65536;

bool is_contiguous(const View& view) {
    if (view.shape.count() == 0) return true;
    std::int64_t expected = 1;
    for (int dim = view.shape.ndim; dim-- > 0;) {
        if (view.shape.size[dim] != 1 && view.stride[dim] != expected) return false;
        expected *= view.shape.size[dim];
    }
    return true;
}

void check_qparams(const QParams& qparams) {
    const View &scale = qparams.scale, &zero = qparams.zero_point;
    if (scale.dtype != DType::f32) throw ArgumentTypeError("scale must be float32: convert it with scale.float()");
    if (zero.dtype != DType::i32 && zero.dtype != DType::f32) {
        throw ArgumentTypeError("zero_point must be int32, or float32 in the float-zero-point form: convert it");
    }
    const bool one_shape = scale.shape.ndim == zero.shape.ndim &&
                           std::equal(scale.shape.size, scale.shape.size + scale.shape.ndim, zero.shape.size);
    if (!one_shape) throw ArgumentError("scale and zero_point differ in shape: give them one shape");
    if (!is_contiguous(scale) || !is_contiguous(zero)) {
        throw ArgumentError("scale and zero_point must be contiguous: call contiguous() on them");
    }
    if (qparams.qmin > qparams.qmax || qparams.qmin < INT32_MIN || qparams.qmax > INT32_MAX) {
        throw ArgumentError("[qmin, qmax] = [" + std::to_string(qparams.qmin) + ", " + std::to_string(qparams.qmax) +
                            "] is not a range of 32-bit integers: choose qmin < qmax inside it");
    }
}

bool leaves_float32(const View& zero, std::int64_t count) {
    const auto* values = reinterpret_cast<const std::int32_t*>(zero.data);
    return std::any_of(values, values + count, [](std::int32_t value) {
        return value < -kExactInFloat32 || value > kExactInFloat32;
    });
}

}  // namespace

Call::Call(std::initializer_list<const View*> operands, const Shape& scale, int outputs)
    : plan_(make_plan(operands.begin(), static_cast<int>(operands.size()), scale)), job_{} {
    int k = 0;
    for (const View* view : operands) {
        if (!view->data && !is_empty()) throw ArgumentError("a tensor without memory of its own: pass a plain one");
        job_.data[k] = view->data;
        job_.dtype[k++] = view->dtype;
    }
    std::int64_t bytes = 0;
    for (int output = 0; output < outputs; ++output) {
        if (plan_.row > 1 && plan_.step[output] != 1) throw ArgumentError("an output that is not dense: allocate it with empty_like");
        bytes += plan_.count * size_of(job_.dtype[output]);
    }
    job_.plan = &plan_;
    job_.first_input = outputs;
    job_.stream = bytes >= kStreamedBytes;
}

void Call::set_qparams(const QParams& qparams, bool codes_given) {
    check_qparams(qparams);
    if (is_empty()) return;
    const View& zero = qparams.zero_point;
    const bool is_integer = zero.dtype == DType::i32;
    bool wide = qparams.qmin < kNarrowest || qparams.qmax > kWidest;
    if (codes_given && is_integer) wide = job_.dtype[1] == DType::i32 || leaves_float32(zero, plan_.scales);
    if (!is_integer && wide) {
        throw ArgumentError("a float zero_point takes codes of at most 16 bits: use an int32 zero_point");
    }
    job_.qmin = static_cast<double>(qparams.qmin);
    job_.qmax = static_cast<double>(qparams.qmax);
    job_.scale = reinterpret_cast<const float*>(qparams.scale.data);
    job_.zero = reinterpret_cast<const Cell*>(zero.data);
    job_.formula = !is_integer ? Formula::shifted : wide ? Formula::wide : Formula::narrow;
    if (job_.formula == Formula::narrow) {
        const auto* values = reinterpret_cast<const std::int32_t*>(zero.data);
        narrow_zero_.assign(values, values + plan_.scales);
        job_.zero = reinterpret_cast<const Cell*>(narrow_zero_.data());
    }
    if (plan_.pattern == Pattern::table) write_table();
}

void Call::write_table() {
    const std::int64_t length = accumulators();
    scale_table_.resize(static_cast<std::size_t>(length));
    zero_table_.resize(static_cast<std::size_t>(length));
    expand(plan_, Tile{{}, 0, 0, length}, job_.scale, job_.zero, scale_table_.data(), zero_table_.data());
    job_.scale_table = scale_table_.data();
    job_.zero_table = zero_table_.data();
}

std::int64_t Call::accumulators() const {
    return plan_.pattern == Pattern::table ? plan_.period + kTile : plan_.scales;
}

void require_float(const View& view, const std::string& name) {
    if (!is_float(view.dtype)) {
        throw ArgumentTypeError(name + " must be float16, bfloat16, float32 or float64: convert it with " + name + ".float()");
    }
}

void require_codes(const View& view, const std::string& name) {
    if (is_float(view.dtype) || view.dtype == DType::boolean) {
        throw ArgumentTypeError(name + " must be int8, uint8, int16, uint16 or int32: convert it");
    }
}

}  // namespace halfstep
