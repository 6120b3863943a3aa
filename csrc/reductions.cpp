// The calls that reduce over the elements that share a scale.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "call.hpp"
#include "checks.hpp"
#include "errors.hpp"
#include "kernels/order_key.hpp"
#include "kernels/walk.hpp"
#include "levels.hpp"
#include "threads.hpp"

namespace halfstep {
namespace {

// Two arrays of accumulators for each thread of a reduction, such as minima and maxima.
template <class Number>
class Accumulators {
 public:
    Accumulators(const Call& call, int threads, Number first, Number second) : call_(call) {
        // Each thread pays for clearing and joining its own, so they stay few against the elements.
        const std::int64_t size = call.accumulators(), elements = call.plan().count;
        const std::int64_t worth = elements / (8 * size) + 1;
        const auto count = static_cast<std::size_t>(
            std::min<std::int64_t>(useful_threads(elements, threads), worth));
        first_.assign(count, std::vector<Number>(static_cast<std::size_t>(size), first));
        second_.assign(count, std::vector<Number>(static_cast<std::size_t>(size), second));
    }

    std::size_t threads() const { return first_.size(); }
    Number* first(std::size_t thread) { return first_[thread].data(); }
    Number* second(std::size_t thread) { return second_[thread].data(); }

    // Calls take(scale, first, second) for every accumulator of every thread.
    template <class Take>
    void join(Take take) {
        const std::int64_t size = call_.accumulators();
        const auto visit = [&](std::int64_t at, std::int64_t index) {
            for (std::size_t thread = 0; thread < threads(); ++thread) {
                take(static_cast<std::size_t>(index), first(thread)[at], second(thread)[at]);
            }
        };
        if (call_.plan().pattern != Pattern::table) {
            for (std::int64_t at = 0; at < size; ++at) visit(at, at);
            return;
        }
        for_runs(
            call_.plan(), Tile{{}, 0, 0, size},
            [&](std::int64_t at, std::int64_t length, std::int64_t index, std::int64_t stride) {
                for (std::int64_t j = 0; j < length; ++j) visit(at + j, index + j * stride);
            });
    }

 private:
    const Call& call_;
    std::vector<std::vector<Number>> first_;
    std::vector<std::vector<Number>> second_;
};

// -0.0 becomes 0.0, so that the order of the elements does not show.
float value_of(Key key) {
    const Key bits = key_of(static_cast<std::uint32_t>(key));
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value + 0.0f;
}

// lo and hi have one entry for each scale of the call.
void run_min_max(Call& call, int threads, float* lo, float* hi) {
    const auto scales = static_cast<std::size_t>(call.plan().scales);
    std::fill(lo, lo + scales, 0.0f);
    std::fill(hi, hi + scales, 0.0f);
    if (call.is_empty()) return;
    constexpr Key highest = std::numeric_limits<Key>::max(),
                  lowest = std::numeric_limits<Key>::min();
    std::vector<Key> least(scales, highest), most(scales, lowest);
    Accumulators<Key> found(call, threads, highest, lowest);
    std::vector<Partial> partials(found.threads());
    for (std::size_t k = 0; k < partials.size(); ++k) {
        partials[k].lo = found.first(k);
        partials[k].hi = found.second(k);
    }
    run(kernels().min_max, call.job(), partials);
    found.join([&](std::size_t scale, Key low, Key high) {
        least[scale] = std::min(least[scale], low);
        most[scale] = std::max(most[scale], high);
    });
    for (std::size_t k = 0; k < scales; ++k) {
        const bool nan = least[k] < kMinusInfinityKey || most[k] > kInfinityKey;
        lo[k] = nan ? std::numeric_limits<float>::quiet_NaN() : value_of(least[k]);
        hi[k] = nan ? std::numeric_limits<float>::quiet_NaN() : value_of(most[k]);
    }
}

// The largest magnitude; the largest float32 where it is not finite.
double largest_magnitude(const View& view, int threads) {
    Shape one = view.shape;
    std::fill(one.size, one.size + one.ndim, 1);
    Call call({&view}, one, 0);
    float lo = 0.0f, hi = 0.0f;
    run_min_max(call, threads, &lo, &hi);
    const float largest = std::fmax(-lo, hi);
    return std::isfinite(lo) && std::isfinite(hi) ? largest : FLT_MAX;
}

// Adding this to a term and subtracting it again leaves a multiple of n * bound * 2^-52 or so, and
// n such terms of magnitude up to `bound` have an exact sum in float64.
double anchor_for(double terms, double bound) {
    int exponent = 0;
    std::frexp(terms * bound, &exponent);
    return std::ldexp(1.5, exponent);
}

void set_anchors(Call& call, const QParams& qparams, double largest) {
    const auto* scale = reinterpret_cast<const float*>(qparams.scale.data);
    double widest = 0.0;
    for (std::int64_t k = 0; k < call.plan().scales; ++k)
        widest = std::fmax(widest, std::fabs(scale[k]));
    const auto terms = static_cast<double>(call.plan().count / call.plan().scales);
    call.job().scale_anchor = anchor_for(terms, largest * (call.job().qmax - call.job().qmin));
    call.job().zero_anchor = anchor_for(terms, largest * widest);
}

}  // namespace

void min_max(const View& lo, const View& hi, const View& x, int threads) {
    require_float(x, "x");
    for (const View* out : {&lo, &hi}) {
        if (out->dtype != DType::f32) throw ArgumentTypeError("minima and maxima are float32");
        require_same_shape(*out, lo.shape, "hi");
        require_contiguous(*out, "minima and maxima");
    }
    Call call({&x}, lo.shape, 0);
    run_min_max(call, threads, reinterpret_cast<float*>(lo.data),
                reinterpret_cast<float*>(hi.data));
}

void learnable_backward(const View& out, const View& scale_gradient, const View& zero_gradient,
                        const View& gradient, const View& x, const QParams& qparams, float factor,
                        int threads) {
    require_float(x, "x");
    require_float(gradient, "grad");
    for (const View* sum : {&scale_gradient, &zero_gradient}) {
        if (sum->dtype != DType::f32)
            throw ArgumentTypeError("gradients of scale and zero_point are float32");
        require_same_shape(*sum, qparams.scale.shape, "the gradient of scale or zero_point");
        require_contiguous(*sum, "the gradient of scale or zero_point");
    }
    Call call({&out, &x, &gradient}, qparams.scale.shape, 1);
    call.set_qparams(qparams, false);
    std::vector<double> scale_sums(static_cast<std::size_t>(call.plan().scales)),
        zero_sums(scale_sums);
    if (!call.is_empty()) {
        set_anchors(call, qparams, largest_magnitude(gradient, threads));
        Accumulators<double> sums(call, threads, 0.0, 0.0);
        std::vector<Partial> partials(sums.threads());
        for (std::size_t k = 0; k < partials.size(); ++k) {
            partials[k].scale_sum = sums.first(k);
            partials[k].zero_sum = sums.second(k);
        }
        run(kernels().learnable, call.job(), partials);
        sums.join([&](std::size_t scale, double of_scale, double of_zero) {
            scale_sums[scale] += of_scale;
            zero_sums[scale] += of_zero;
        });
    }
    for (std::size_t k = 0; k < scale_sums.size(); ++k) {
        reinterpret_cast<float*>(scale_gradient.data)[k] =
            static_cast<float>(scale_sums[k]) * factor;
        reinterpret_cast<float*>(zero_gradient.data)[k] = static_cast<float>(zero_sums[k]) * factor;
    }
}

}  // namespace halfstep
