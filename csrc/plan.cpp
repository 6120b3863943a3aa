#include "plan.hpp"

#include <algorithm>
#include <string>

#include "errors.hpp"

namespace halfstep {
namespace {

std::string text(const Shape& shape) {
    std::string out = "(";
    for (int dim = 0; dim < shape.ndim; ++dim) {
        out += (dim ? ", " : "") + std::to_string(shape.size[dim]);
    }
    return out + (shape.ndim == 1 ? ",)" : ")");
}

void check_shapes(const View* const* operands, int count, const Shape& scale) {
    const Shape& shape = operands[0]->shape;
    for (int k = 1; k < count; ++k) {
        const Shape& other = operands[k]->shape;
        if (other.ndim != shape.ndim ||
            !std::equal(shape.size, shape.size + shape.ndim, other.size)) {
            throw ArgumentError("operands of shapes " + text(shape) + " and " + text(other) +
                                " do not match: give them one shape");
        }
    }
    bool fits = scale.ndim == shape.ndim;
    for (int dim = 0; fits && dim < shape.ndim; ++dim) {
        const std::int64_t size = shape.size[dim], parts = scale.size[dim];
        fits = parts == size || (parts > 0 && size % parts == 0);
    }
    if (!fits) {
        throw ArgumentError("a scale of shape " + text(scale) + " does not fit a tensor of shape " +
                            text(shape) +
                            ": each of its sizes must be 1, the tensor's, or a divisor of it");
    }
}

// The dimensions of the walk, those of size 1 dropped. A grouped one becomes (groups, group size).
// At most 62 remain: each has size 2 or more, and their product is below 2^63.
int list_dims(const View* const* operands, int count, const Shape& scale, Dim* dims) {
    int found = 0;
    std::int64_t scale_stride = count_of(scale);
    for (int dim = 0; dim < scale.ndim; ++dim) {
        const std::int64_t parts = scale.size[dim], group = operands[0]->shape.size[dim] / parts;
        scale_stride /= parts;
        for (const bool is_group : {false, true}) {
            Dim entry{is_group ? group : parts, {}, is_group ? 0 : scale_stride};
            for (int k = 0; k < count; ++k) {
                entry.step[k] = operands[k]->stride[dim] * (is_group ? 1 : group);
            }
            if (entry.size > 1) dims[found++] = entry;
        }
    }
    return found;
}

bool joins(const Dim& outer, const Dim& inner, int operands) {
    bool joined = true;
    for (int k = 0; k < operands; ++k) joined &= outer.step[k] == inner.step[k] * inner.size;
    return joined;
}

// Moves the innermost dimensions that form one row out of `dims`; their scales become digits.
int split_row(Plan& plan, int found) {
    plan.row = 1;
    plan.digit_count = 0;
    int first = found;
    while (first > 0 &&
           (first == found || joins(plan.outer[first - 1], plan.outer[first], plan.operands))) {
        --first;
    }
    for (int k = 0; k < plan.operands; ++k)
        plan.step[k] = found ? plan.outer[found - 1].step[k] : 1;
    for (int dim = first; dim < found; ++dim) {
        const Dim& entry = plan.outer[dim];
        plan.row *= entry.size;
        Digit* last = plan.digit_count ? &plan.digits[plan.digit_count - 1] : nullptr;
        if (last && last->stride == entry.scale * entry.size) {
            *last = {last->size * entry.size, entry.scale};
        } else {
            plan.digits[plan.digit_count++] = {entry.size, entry.scale};
        }
    }
    if (plan.digit_count == 0) plan.digits[plan.digit_count++] = {1, 0};
    return first;
}

bool is_periodic(const Plan& plan) {
    bool periodic = plan.digit_count > 1 && plan.digits[0].stride == 0;
    for (int dim = 0; dim < plan.outer_count; ++dim) periodic &= plan.outer[dim].scale == 0;
    return periodic;
}

Pattern choose_pattern(const Plan& plan) {
    const Digit& inner = plan.digits[plan.digit_count - 1];
    if (is_periodic(plan) && plan.period <= kLongestTable && inner.size < kMediumRun)
        return Pattern::table;
    const bool simple = inner.stride == 0 || inner.stride == 1;
    return simple && (inner.size >= kShortRun || plan.digit_count == 1) ? Pattern::runs
                                                                        : Pattern::fill;
}

// Scales that differ between neighbours, for longer than L1 holds them, crowd the processor's own
// prefetching out.
bool crowds_l1(const Plan& plan) {
    const bool varies =
        plan.pattern != Pattern::runs || plan.digits[plan.digit_count - 1].stride == 1;
    return varies &&
           (plan.pattern == Pattern::fill || plan.period > kTile || plan.digit_count == 1);
}

}  // namespace

Plan make_plan(const View* const* operands, int count, const Shape& scale) {
    check_shapes(operands, count, scale);
    Plan plan;
    plan.count = count_of(operands[0]->shape);
    plan.scales = count_of(scale);
    plan.operands = count;
    plan.outer_count = plan.digit_count = 0;
    plan.row = plan.rows = plan.period = 0;
    plan.prefetch = false;
    plan.pattern = Pattern::runs;
    if (plan.count == 0) return plan;
    const int found = list_dims(operands, count, scale, plan.outer);
    std::stable_sort(plan.outer, plan.outer + found,
                     [](const Dim& a, const Dim& b) { return a.step[0] > b.step[0]; });
    plan.outer_count = split_row(plan, found);
    plan.rows = plan.count / plan.row;
    plan.period = plan.row / plan.digits[0].size;
    plan.pattern = choose_pattern(plan);
    plan.prefetch = crowds_l1(plan);
    return plan;
}

}  // namespace halfstep
