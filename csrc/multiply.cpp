// Products of matrices of codes: one of them is packed as the weights of a linear layer are.
#include <algorithm>
#include <vector>

#include "integer_calls.hpp"
#include "levels.hpp"
#include "threads.hpp"

namespace halfstep {
namespace {

constexpr std::int64_t kProductsPerThread = 1 << 19;
constexpr std::int64_t kRowsAtOnce = 24;

// A matrix in the order of weights, with what belongs to its columns.
struct Columns {
    std::vector<std::int8_t> codes;
    std::vector<std::int32_t> sums, start;
    std::vector<float> scale, bias;
    std::vector<std::uint8_t> scratch;
    std::int64_t steps;

    explicit Columns(const Pairs& pairs)
        : steps((pairs.inner + kStep - 1) / kStep) {
        const std::int64_t blocks = (pairs.columns + kBlock - 1) / kBlock;
        const std::size_t padded = static_cast<std::size_t>(blocks * kBlock);
        codes.resize(padded * static_cast<std::size_t>(steps * kStep));
        sums.resize(padded);
        start.resize(padded);
        scale.assign(padded, pairs.b_codes.scale);
        bias.assign(padded, -0.0f);
        scratch.resize(static_cast<std::size_t>(kRowsAtOnce * steps * kStep));
    }

    // Unsigned codes become signed ones that are less by 128.
    void pack(const Pairs& pairs, const std::uint8_t* b, std::uint32_t x_zero) {
        const std::uint8_t flip = pairs.b_codes.dtype == DType::u8 ? 0x80 : 0;
        for (std::int64_t column = 0; column < pairs.columns; ++column) {
            std::int8_t* to = codes.data() + column / kBlock * (steps * kBlock * kStep) +
                              column % kBlock * kStep;
            const std::uint8_t* from = b + column * pairs.column_step;
            std::uint32_t sum = 0;
            for (std::int64_t k = 0; k < pairs.inner; ++k) {
                const auto code = static_cast<std::int8_t>(from[k * pairs.inner_step] ^ flip);
                to[k / kStep * (kBlock * kStep) + k % kStep] = code;
                sum += static_cast<std::uint32_t>(static_cast<std::int32_t>(code));
            }
            const std::size_t place = static_cast<std::size_t>(column);
            sums[place] = static_cast<std::int32_t>(sum);
            start[place] = static_cast<std::int32_t>(0u - x_zero * sum);
        }
    }
};

Contraction of_columns(Contraction c, const Pairs& pairs, const Columns& columns) {
    c.weight = columns.codes.data();
    c.sums = columns.sums.data();
    c.start = columns.start.data();
    c.scale = columns.scale.data();
    c.bias = columns.bias.data();
    c.channels = pairs.inner;
    c.outputs = pairs.columns;
    c.groups = c.taps = 1;
    c.weight_zero = pairs.b_codes.zero - (pairs.b_codes.dtype == DType::u8 ? 128 : 0);
    c.depthwise = false;
    return c;
}

Feed rows_of(const Pairs& pairs, std::int64_t pair) {
    Feed feed{};
    feed.x = pairs.a + pair * pairs.rows * pairs.inner;
    feed.rows_per_scale = 1;
    feed.rows = pairs.rows;
    return feed;
}

}  // namespace

void multiply(const Contraction& contraction, const Pairs& pairs, int allowed) {
    if (pairs.count * pairs.rows * pairs.columns == 0) return;
    const std::int64_t products = pairs.count * pairs.rows * pairs.inner * pairs.columns;
    const int threads = threads_for_work(products, kProductsPerThread, allowed);
    const std::uint32_t zero = static_cast<std::uint32_t>(
        contraction.x.zero + (contraction.x.dtype == DType::i8 ? 128 : 0));
    const std::int64_t result = pairs.rows * pairs.columns * size_of(contraction.finish.dtype);
    const auto run = kernels().contract;
    run_parts(threads, [&](std::int64_t part, std::int64_t parts) {
        Columns columns(pairs);
        const Contraction c = of_columns(contraction, pairs, columns);
        const std::int64_t blocks = (pairs.columns + kBlock - 1) / kBlock;
        for (std::int64_t pair = pairs.count * part / parts;
             pair < pairs.count * (part + 1) / parts; ++pair) {
            columns.pack(pairs, pairs.b + pair * pairs.b_step, zero);
            Feed feed = rows_of(pairs, pair);
            feed.out = pairs.out + pair * result;
            std::fill(feed.in, feed.in + kSpace, 1);
            std::fill(feed.out_size, feed.out_size + kSpace, 1);
            run(c, feed, {0, pairs.rows, 0, blocks, columns.scratch.data(), kRowsAtOnce});
        }
    });
}

}  // namespace halfstep
