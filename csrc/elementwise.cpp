// The calls that map elements to elements, and packing.
#include <algorithm>
#include <string>

#include "call.hpp"
#include "checks.hpp"
#include "errors.hpp"
#include "levels.hpp"
#include "threads.hpp"

namespace halfstep {
namespace {

// Runs an elementwise kernel; returns whether a thread saw NaN.
bool run_elementwise(Kernel kernel, Call& call, int threads) {
    if (call.is_empty()) return false;
    std::vector<Partial> partials(
        static_cast<std::size_t>(useful_threads(call.plan().count, threads)));
    run(kernel, call.job(), partials);
    bool nan = false;
    for (const Partial& partial : partials) nan |= partial.nan;
    return nan;
}

void require_mask(const View& mask) {
    if (mask.dtype == DType::boolean) return;
    throw ArgumentTypeError("mask must be bool: convert it with mask.bool()");
}

}  // namespace

bool quantize(const View& codes, const View& x, const QParams& qparams, int threads) {
    require_float(x, "x");
    require_codes(codes, "dtype");
    require_range(qparams, codes.dtype);
    Call call({&codes, &x}, qparams.scale.shape, 1);
    call.set_qparams(qparams, false);
    return run_elementwise(kernels().quantize, call, threads);
}

void dequantize(const View& y, const View& codes, const QParams& qparams, int threads) {
    require_codes(codes, "q");
    require_float(y, "dtype");
    Call call({&y, &codes}, qparams.scale.shape, 1);
    call.set_qparams(qparams, true);
    run_elementwise(kernels().dequantize, call, threads);
}

void fake_quantize(const View& y, const View* mask, const View& x, const QParams& qparams,
                   int threads) {
    require_float(x, "x");
    require_float(y, "y");
    if (mask) require_mask(*mask);
    if (!mask) {
        Call call({&y, &x}, qparams.scale.shape, 1);
        call.set_qparams(qparams, false);
        run_elementwise(kernels().fake_quantize, call, threads);
        return;
    }
    Call call({&y, mask, &x}, qparams.scale.shape, 2);
    call.set_qparams(qparams, false);
    run_elementwise(kernels().fake_quantize, call, threads);
}

void mask_gradient(const View& out, const View& gradient, const View& mask, int threads) {
    require_float(gradient, "grad");
    require_mask(mask);
    if (out.dtype != gradient.dtype) throw ArgumentTypeError("the output must have grad's dtype");
    Shape one = out.shape;
    std::fill(one.size, one.size + one.ndim, 1);
    Call call({&out, &gradient, &mask}, one, 1);
    run_elementwise(kernels().mask_gradient, call, threads);
}

namespace {

// Checks a pair of packed bytes and codes; returns the number of codes.
std::int64_t count_codes(const View& codes, const View& bytes, int bits) {
    if (bits != 2 && bits != 4)
        throw ArgumentError("bits=" + std::to_string(bits) + " is not packed: use 2 or 4");
    if (size_of(codes.dtype) != 1 || is_float(codes.dtype)) {
        throw ArgumentTypeError("codes to pack must be int8 or uint8: convert them");
    }
    require_contiguous(codes, "codes to pack");
    require_contiguous(bytes, "packed bytes");
    const std::int64_t count = count_of(codes.shape), needed = (count * bits + 7) / 8;
    if (bytes.dtype != DType::u8 || count_of(bytes.shape) != needed) {
        throw ArgumentError(std::to_string(count) + " codes of " + std::to_string(bits) +
                            " bits are " + std::to_string(needed) + " bytes of uint8, not " +
                            std::to_string(count_of(bytes.shape)) +
                            ": give the shape that was packed");
    }
    return count;
}

}  // namespace

void pack(const View& bytes, const View& codes, int bits) {
    const std::int64_t count = count_codes(codes, bytes, bits);
    kernels().pack(reinterpret_cast<const std::uint8_t*>(codes.data), count, bits,
                   reinterpret_cast<std::uint8_t*>(bytes.data));
}

void unpack(const View& codes, const View& bytes, int bits, bool is_signed) {
    const std::int64_t count = count_codes(codes, bytes, bits);
    kernels().unpack(reinterpret_cast<const std::uint8_t*>(bytes.data), count, bits, is_signed,
                     reinterpret_cast<std::uint8_t*>(codes.data));
}

}  // namespace halfstep
