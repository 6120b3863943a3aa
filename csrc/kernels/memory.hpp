// Between memory and tiles: strided and converted loads, and stores that go around the caches.
#pragma once

#include <cstring>

#include "convert.hpp"
#include "walk.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace halfstep {
namespace {

// The buffers of one thread.
struct Scratch {
    alignas(64) char raw[kTile * 8];  // gathered elements of a strided operand
    alignas(64) char out[kTile * 8];  // results on their way around the caches
    alignas(64) float x[kTile];
    alignas(64) float y[kTile];
    alignas(64) float scale[kTile];
    alignas(64) Cell zero[kTile];
    alignas(64) std::uint8_t mask[kTile];
};

inline char* place_of(const Job& job, int operand, const Tile& tile) {
    return job.data[operand] + tile.offset[operand] * size_of(job.dtype[operand]);
}

template <class Element>
inline void gather(const char* from, std::int64_t step, std::int64_t length, char* to) {
    const Element* source = reinterpret_cast<const Element*>(from);
    Element* target = reinterpret_cast<Element*>(to);
    for (std::int64_t i = 0; i < length; ++i) target[i] = source[i * step];
}

// The tile's elements side by side: where they are, or gathered into the buffer.
inline const char* load(const Job& job, int operand, const Tile& tile, char* buffer) {
    const char* from = place_of(job, operand, tile);
    const std::int64_t step = job.plan->step[operand];
    if (step == 1) return from;
    switch (size_of(job.dtype[operand])) {
        case 1:
            gather<std::uint8_t>(from, step, tile.length, buffer);
            break;
        case 2:
            gather<std::uint16_t>(from, step, tile.length, buffer);
            break;
        case 4:
            gather<std::uint32_t>(from, step, tile.length, buffer);
            break;
        default:
            gather<std::uint64_t>(from, step, tile.length, buffer);
    }
    return buffer;
}

// The tile as float32: where it is, or converted into the buffer.
inline const float* load_floats(const Job& job, int operand, const Tile& tile, float* buffer,
                                char* raw) {
    const DType dtype = job.dtype[operand];
    char* gathered = dtype == DType::f32 ? reinterpret_cast<char*>(buffer) : raw;
    const char* from = load(job, operand, tile, gathered);
    if (dtype == DType::f32) return reinterpret_cast<const float*>(from);
    if (dtype == DType::f16) to_floats(reinterpret_cast<const Float16*>(from), buffer, tile.length);
    if (dtype == DType::bf16)
        to_floats(reinterpret_cast<const BFloat16*>(from), buffer, tile.length);
    if (dtype == DType::f64) to_floats(reinterpret_cast<const double*>(from), buffer, tile.length);
    return buffer;
}

// Copies to memory without first reading the cache lines that it overwrites.
inline void stream_copy(char* to, const char* from, std::int64_t bytes) {
#if defined(__SSE2__)
    const std::int64_t head = smaller(bytes, -reinterpret_cast<std::intptr_t>(to) & 63);
    std::memcpy(to, from, static_cast<std::size_t>(head));
    std::int64_t i = head;
    for (; i + 16 <= bytes; i += 16) {
        const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), value);
    }
    std::memcpy(to + i, from + i, static_cast<std::size_t>(bytes - i));
#else
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
#endif
}

// Other threads see streamed stores only after a fence.
inline void finish_streaming(const Job& job) {
#if defined(__SSE2__)
    if (job.stream) _mm_sfence();
#else
    (void)job;
#endif
}

// Where a kernel writes a tile: in place, or into the buffer from which `store` streams it.
inline char* target_of(const Job& job, int operand, const Tile& tile, void* buffer) {
    return job.stream ? static_cast<char*>(buffer) : place_of(job, operand, tile);
}

inline void store(const Job& job, int operand, const Tile& tile, const char* written) {
    char* place = place_of(job, operand, tile);
    if (written != place) stream_copy(place, written, tile.length * size_of(job.dtype[operand]));
}

// Where a kernel writes float32 results that `store_floats` converts to the operand's dtype.
inline float* float_target(const Job& job, int operand, const Tile& tile, float* buffer) {
    if (job.dtype[operand] != DType::f32) return buffer;
    return reinterpret_cast<float*>(target_of(job, operand, tile, buffer));
}

inline void store_floats(const Job& job, int operand, const Tile& tile, const float* y,
                         char* buffer) {
    const DType dtype = job.dtype[operand];
    if (dtype == DType::f32) return store(job, operand, tile, reinterpret_cast<const char*>(y));
    char* target = target_of(job, operand, tile, buffer);
    if (dtype == DType::f16) from_floats(y, reinterpret_cast<Float16*>(target), tile.length);
    if (dtype == DType::bf16) from_floats(y, reinterpret_cast<BFloat16*>(target), tile.length);
    if (dtype == DType::f64) from_floats(y, reinterpret_cast<double*>(target), tile.length);
    store(job, operand, tile, target);
}

}  // namespace
}  // namespace halfstep
