// Splits a linear layer or convolution between threads.
#include <algorithm>
#include <vector>

#include "integer_calls.hpp"
#include "levels.hpp"
#include "threads.hpp"

namespace halfstep {
namespace {

constexpr std::int64_t kProductsPerThread = 1 << 19;  // fewer do not pay for waking a thread
constexpr std::int64_t kScratch = 1 << 18;            // bytes of gathered rows: they stay in L2
constexpr std::int64_t kMostRows = 96, kLeastRows = 6;

std::int64_t round_up(std::int64_t value, std::int64_t step) {
    return (value + step - 1) / step * step;
}

// Rows that are worked on together, a multiple of those of a tile.
std::int64_t chunk_of(std::int64_t inner) {
    const std::int64_t fitting = kScratch / std::max<std::int64_t>(inner, 1);
    return std::min(std::max(fitting / kLeastRows * kLeastRows, kLeastRows), kMostRows);
}

// Memory that a thread keeps, so that large calls do not ask the system for it each time.
std::uint8_t* scratch_of(std::int64_t bytes) {
    thread_local std::vector<std::uint8_t> memory;
    if (static_cast<std::int64_t>(memory.size()) < bytes + 64) {
        memory.resize(static_cast<std::size_t>(bytes + 64));
    }
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    return memory.data() + (64 - address % 64) % 64;
}

int threads_for(const Contraction& c, const Feed& feed, int allowed) {
    const std::int64_t products =
        feed.rows * c.groups * c.outputs * c.taps * (c.depthwise ? 1 : c.channels);
    return threads_for_work(products, kProductsPerThread, allowed);
}

}  // namespace

void contract(const Contraction& c, const Feed& feed, int allowed) {
    if (feed.rows == 0 || c.outputs == 0) return;
    const int threads = threads_for(c, feed, allowed);
    const std::int64_t blocks = (c.outputs + kBlock - 1) / kBlock;
    const std::int64_t inner = round_up(c.taps * c.channels, kStep);
    const std::int64_t chunk = chunk_of(inner);
    const std::int64_t bytes =
        c.depthwise ? round_up(c.groups, kChannels) + round_up(c.taps, kStep) * 16 : chunk * inner;
    // Each thread reads its share of the larger of the two: rows or weights.
    const bool by_rows = c.depthwise || c.groups > 1 || feed.rows >= c.outputs || blocks < threads;
    const std::int64_t tile = by_rows ? (feed.rows >= threads * kLeastRows ? kLeastRows : 1) : 1;
    const auto run = c.depthwise ? kernels().depthwise : kernels().contract;
    run_parts(threads, [&](std::int64_t part, std::int64_t parts) {
        Share share{0, feed.rows, 0, blocks, scratch_of(bytes), chunk};
        const std::int64_t all = by_rows ? feed.rows : blocks;
        const std::int64_t first = std::min(round_up(all * part / parts, tile), all);
        const std::int64_t last =
            part + 1 == parts ? all : std::min(round_up(all * (part + 1) / parts, tile), all);
        (by_rows ? share.first_row : share.first_block) = first;
        (by_rows ? share.last_row : share.last_block) = last;
        run(c, feed, share);
    });
}

}  // namespace halfstep
