#include "call.hpp"

#include <algorithm>

#include "checks.hpp"
#include "errors.hpp"
#include "kernels/walk.hpp"

namespace halfstep {
namespace {

// Larger outputs do not stay in the caches anyway, and writing around them saves reading their
// lines.
constexpr std::int64_t kStreamedBytes = 8 << 20;

constexpr std::int64_t kExactInFloat32 =
    1 << 22;                                 // |q - zero_point| up to twice this has no rounding
constexpr std::int64_t kNarrowest = -65536;  // beyond these bounds a float32 sum may round a code
constexpr std::int64_t kWidest = 65536;

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
        if (!view->data && !is_empty())
            throw ArgumentError("a tensor without memory of its own: pass a plain one");
        job_.data[k] = view->data;
        job_.dtype[k++] = view->dtype;
    }
    std::int64_t bytes = 0;
    for (int output = 0; output < outputs; ++output) {
        if (plan_.row > 1 && plan_.step[output] != 1)
            throw ArgumentError("an output that is not dense: allocate it with empty_like");
        bytes += plan_.count * size_of(job_.dtype[output]);
    }
    job_.plan = &plan_;
    job_.first_input = outputs;
    job_.stream = bytes >= kStreamedBytes;
}

void Call::set_qparams(const QParams& qparams, bool codes_given) {
    require_qparams(qparams);
    if (is_empty()) return;
    const View& zero = qparams.zero_point;
    const bool is_integer = zero.dtype == DType::i32;
    bool wide = qparams.qmin < kNarrowest || qparams.qmax > kWidest;
    if (codes_given && is_integer)
        wide = job_.dtype[1] == DType::i32 || leaves_float32(zero, plan_.scales);
    if (!is_integer && wide) {
        throw ArgumentError(
            "a float zero_point takes codes of at most 16 bits: use an int32 zero_point");
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
    expand(plan_, Tile{{}, 0, 0, length}, job_.scale, job_.zero, scale_table_.data(),
           zero_table_.data());
    job_.scale_table = scale_table_.data();
    job_.zero_table = zero_table_.data();
}

std::int64_t Call::accumulators() const {
    return plan_.pattern == Pattern::table ? plan_.period + kTile : plan_.scales;
}

}  // namespace halfstep
