// Means and maxima over windows of channels-last images, and means over a middle dimension.
#pragma once

#include "finish.hpp"

namespace halfstep {
namespace {

constexpr int kPooled = 64;  // channels at once

// y = (float(acc - zero * places) * scale) / divisor, finished at element `at` of out.
inline void finish_mean(const std::int32_t* acc, std::int64_t length, const Operand& x,
                        std::int64_t places, float divisor, const Finish& finish, char* out,
                        std::int64_t at) {
    alignas(64) float y[kPooled];
    const std::int32_t shift = x.zero * static_cast<std::int32_t>(places);
    for (std::int64_t j = 0; j < length; ++j) {
        y[j] = (static_cast<float>(acc[j] - shift) * x.scale) / divisor;
    }
    store_finished(y, out, at, length, finish);
}

template <class Code>
inline void add_codes(const Code* HALFSTEP_RESTRICT x, std::int64_t length,
                      std::int32_t* HALFSTEP_RESTRICT acc) {
    if (length == kPooled) {
        for (int j = 0; j < kPooled; ++j) acc[j] += x[j];
        return;
    }
    for (std::int64_t j = 0; j < length; ++j) acc[j] += x[j];
}

template <class Code>
inline void raise_codes(const Code* HALFSTEP_RESTRICT x, std::int64_t length,
                        Code* HALFSTEP_RESTRICT most) {
    if (length == kPooled) {
        for (int j = 0; j < kPooled; ++j) most[j] = x[j] > most[j] ? x[j] : most[j];
        return;
    }
    for (std::int64_t j = 0; j < length; ++j) most[j] = x[j] > most[j] ? x[j] : most[j];
}

// One output place: the number of its sample's first pixel, and its place along each dimension.
struct Pooled {
    std::int64_t origin;
    std::int64_t place[kSpace];

    Pooled(const Windows& w, std::int64_t number) {
        for (int dim = kSpace; dim-- > 0;) {
            place[dim] = number % w.out_size[dim];
            number /= w.out_size[dim];
        }
        origin = number * w.in[0] * w.in[1] * w.in[2];
    }
};

// Calls body(pixel) for the pixels of a window; returns how many there are.
template <class Body>
inline std::int64_t for_window(const Windows& w, const Pooled& at, Body body) {
    std::int64_t first[kSpace], end[kSpace], places = 0;
    for (int dim = 0; dim < kSpace; ++dim) {
        first[dim] = w.first[dim][at.place[dim]];
        end[dim] = w.end[dim][at.place[dim]];
    }
    for (std::int64_t d = first[0]; d < end[0]; d += w.step[0]) {
        for (std::int64_t h = first[1]; h < end[1]; h += w.step[1]) {
            const std::int64_t start = at.origin + (d * w.in[1] + h) * w.in[2];
            for (std::int64_t i = first[2]; i < end[2]; i += w.step[2], ++places) body(start + i);
        }
    }
    return places;
}

inline float divisor_of(const Windows& w, const Pooled& at) {
    if (w.divisor != 0) return w.divisor;
    std::int64_t count = 1;
    for (int dim = 0; dim < kSpace; ++dim) count *= w.count[dim][at.place[dim]];
    return static_cast<float>(count);
}

template <class Code>
inline void pool_place(const Windows& w, const Code* x, char* out, std::int64_t number,
                       std::int64_t channel, std::int64_t length) {
    const Pooled at(w, number);
    const std::int64_t element = number * w.channels + channel;
    if (w.largest) {
        Code most[kPooled];
        for (Code& code : most) code = static_cast<Code>(w.x.dtype == DType::i8 ? -128 : 0);
        for_window(w, at, [&](std::int64_t pixel) {
            raise_codes(x + pixel * w.channels + channel, length, most);
        });
        std::memcpy(out + element, most, static_cast<std::size_t>(length));
        return;
    }
    std::int32_t acc[kPooled] = {};
    const std::int64_t places = for_window(w, at, [&](std::int64_t pixel) {
        add_codes(x + pixel * w.channels + channel, length, acc);
    });
    finish_mean(acc, length, w.x, places, divisor_of(w, at), w.finish, out, element);
}

// The output places [first, last) of all samples.
void pool(const Windows& w, const char* x, char* out, std::int64_t first, std::int64_t last) {
    for_codes(x, w.x.dtype, [&](auto* codes) {
        for (std::int64_t number = first; number < last; ++number) {
            for (std::int64_t channel = 0; channel < w.channels; channel += kPooled) {
                const std::int64_t length = smaller(kPooled, w.channels - channel);
                pool_place(w, codes, out, number, channel, length);
            }
        }
    });
}

template <class Code>
inline std::int32_t sum_codes(const Code* x, std::int64_t length) {
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += x[i];
    return sum;
}

// Means over the middle of (outer, length, inner), for the outer places [first, last).
void mean(const Mean& mean, const char* x, char* out, std::int64_t first, std::int64_t last) {
    const std::int64_t length = mean.length, inner = mean.inner;
    const float divisor = static_cast<float>(length);
    for_codes(x, mean.x.dtype, [&](auto* codes) {
        for (std::int64_t outer = first; outer < last; ++outer) {
            const auto* start = codes + outer * length * inner;
            for (std::int64_t at = 0; at < inner; at += kPooled) {
                std::int32_t acc[kPooled] = {};
                const std::int64_t width = smaller(kPooled, inner - at);
                if (inner == 1) acc[0] = sum_codes(start, length);
                for (std::int64_t i = 0; i < length && inner > 1; ++i) {
                    add_codes(start + i * inner + at, width, acc);
                }
                finish_mean(acc, width, mean.x, length, divisor, mean.finish, out,
                            outer * inner + at);
            }
        }
    });
}

}  // namespace
}  // namespace halfstep
