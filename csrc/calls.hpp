// The calls as the binding makes them: views checked, plan made, threads run, partial results
// joined.
#pragma once

#include <cstdint>

#include "view.hpp"

namespace halfstep {

// The scale (float32) and zero point (int32 or float32) of a call: contiguous, of one shape.
struct QParams {
    View scale;
    View zero_point;
    std::int64_t qmin;
    std::int64_t qmax;
};

// True where x holds NaN.
bool quantize(const View& codes, const View& x, const QParams& qparams, int threads);
void dequantize(const View& y, const View& codes, const QParams& qparams, int threads);
// `mask` may be null.
void fake_quantize(const View& y, const View* mask, const View& x, const QParams& qparams,
                   int threads);
void mask_gradient(const View& out, const View& gradient, const View& mask, int threads);
void min_max(const View& lo, const View& hi, const View& x, int threads);
// Adds to `counts`, `bins` of them for each scale; `base` has the shape of scale.
void histogram(std::int64_t* counts, std::int64_t bins, const View& x, const View& base, int shift,
               int threads);
void learnable_backward(const View& out, const View& scale_gradient, const View& zero_gradient,
                        const View& gradient, const View& x, const QParams& qparams, float factor,
                        int threads);
void pack(const View& bytes, const View& codes, int bits);
void unpack(const View& codes, const View& bytes, int bits, bool is_signed);

}  // namespace halfstep
