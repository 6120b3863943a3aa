// Splits pooling, means, the quantization of rows and the gates between threads.
#include "integer_calls.hpp"
#include "levels.hpp"
#include "threads.hpp"

namespace halfstep {
namespace {

constexpr std::int64_t kElementsPerThread = 32768;

std::int64_t share_of(std::int64_t all, std::int64_t part, std::int64_t parts) {
    return all * part / parts;
}

}  // namespace

void pool(const Windows& windows, const char* x, char* out, std::int64_t samples, int threads) {
    const Windows& w = windows;
    const std::int64_t places = samples * w.out_size[0] * w.out_size[1] * w.out_size[2];
    const std::int64_t read = samples * w.in[0] * w.in[1] * w.in[2] * w.channels;
    const auto kernel = kernels().pool;
    run_parts(threads_for_work(read, kElementsPerThread, threads),
              [&](std::int64_t part, std::int64_t parts) {
                  kernel(w, x, out, share_of(places, part, parts),
                         share_of(places, part + 1, parts));
              });
}

void mean(const Mean& mean, const char* x, char* out, int threads) {
    const std::int64_t read = mean.outer * mean.length * mean.inner;
    const auto kernel = kernels().mean;
    run_parts(threads_for_work(read, kElementsPerThread, threads),
              [&](std::int64_t part, std::int64_t parts) {
                  kernel(mean, x, out, share_of(mean.outer, part, parts),
                         share_of(mean.outer, part + 1, parts));
              });
}

void quantize_rows(const RowFormat& format, const RowsOut& out, const float* x, std::int64_t rows,
                   std::int64_t length, int threads) {
    const auto kernel = kernels().quantize_rows;
    run_parts(threads_for_work(rows * length, kElementsPerThread, threads),
              [&](std::int64_t part, std::int64_t parts) {
                  kernel(format, out, x, length, share_of(rows, part, parts),
                         share_of(rows, part + 1, parts));
              });
}

void gates(const Gates& gates, std::int64_t rows, int threads) {
    const auto kernel = kernels().gates;
    run_parts(threads_for_work(rows * gates.size * gates.parts, kElementsPerThread, threads),
              [&](std::int64_t part, std::int64_t parts) {
                  kernel(gates, share_of(rows, part, parts), share_of(rows, part + 1, parts));
              });
}

}  // namespace halfstep
