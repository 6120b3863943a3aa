// Rows that are quantized while the model runs, each by the range of its own finite values.
#pragma once

#include <cfloat>
#include <cmath>
#include <limits>

#include "../integer.hpp"
#include "quantize.hpp"

namespace halfstep {
namespace {

struct RowRange {
    float lo = 0, hi = 0;  // 0 is always in the range
    bool nan = false;
};

// Lanes, since a minimum over floats does not vectorise by itself.
inline RowRange range_of(const float* x, std::int64_t length) {
    constexpr int kWidth = 16;
    float lo[kWidth] = {}, hi[kWidth] = {};
    std::int32_t nan[kWidth] = {};
    const auto take = [&](int lane, float value) {
        nan[lane] |= value != value;
        const float finite = __builtin_fabsf(value) <= FLT_MAX ? value : 0.0f;
        lo[lane] = finite < lo[lane] ? finite : lo[lane];
        hi[lane] = finite > hi[lane] ? finite : hi[lane];
    };
    std::int64_t i = 0;
    for (; i + kWidth <= length; i += kWidth) {
        for (int lane = 0; lane < kWidth; ++lane) take(lane, x[i + lane]);
    }
    for (; i < length; ++i) take(0, x[i]);
    RowRange range;
    for (int lane = 0; lane < kWidth; ++lane) {
        range.lo = lo[lane] < range.lo ? lo[lane] : range.lo;
        range.hi = hi[lane] > range.hi ? hi[lane] : range.hi;
        range.nan |= nan[lane] != 0;
    }
    return range;
}

// qparams.choose_qparams for one range.
inline One<float> qparams_of(const RowRange& range, const RowFormat& format) {
    const double lo = range.lo, hi = range.hi, qmin = format.qmin, qmax = format.qmax;
    const double low = lo / qmin, high = hi / qmax;
    const double span = format.symmetric ? (low > high ? low : high) : (hi - lo) / (qmax - qmin);
    const double scale =
        span == 0 ? 1.0 : clamp(span, static_cast<double>(FLT_MIN), static_cast<double>(FLT_MAX));
    double zero = 0;
    if (!format.symmetric) zero = clamp(qmin - __builtin_rint(lo / scale), qmin, qmax);
    return {static_cast<float>(scale), static_cast<float>(zero)};
}

void quantize_rows(const RowFormat& format, const RowsOut& out, const float* x, std::int64_t length,
                   std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
        const float* values = x + row * length;
        const RowRange range = range_of(values, length);
        const One<float> qparams = qparams_of(range, format);
        std::uint8_t* codes = out.codes + row * length;
        if (format.dtype == DType::u8) {
            quantize_stretch<Narrow>(values, codes, length, qparams, format.qmin, format.qmax);
        } else {
            quantize_stretch<Narrow>(values, reinterpret_cast<std::int8_t*>(codes), length, qparams,
                                     format.qmin, format.qmax);
        }
        out.scales[row] =
            range.nan ? std::numeric_limits<float>::quiet_NaN() : qparams.scale_value;
        out.zeros[row] = static_cast<std::int32_t>(qparams.zero_value);
    }
}

}  // namespace
}  // namespace halfstep
