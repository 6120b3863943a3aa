// 2- and 4-bit codes in bytes, the first code in the lowest bits.
#pragma once

#include "formula.hpp"

namespace halfstep {
namespace {

template <int bits>
void pack_codes(const std::uint8_t* HALFSTEP_RESTRICT codes, std::int64_t count,
                std::uint8_t* HALFSTEP_RESTRICT bytes) {
    constexpr int per_byte = 8 / bits;
    constexpr unsigned mask = (1u << bits) - 1;
    for (std::int64_t i = 0; i < count / per_byte; ++i) {
        unsigned byte = 0;
        for (int k = 0; k < per_byte; ++k) byte |= (codes[i * per_byte + k] & mask) << (k * bits);
        bytes[i] = static_cast<std::uint8_t>(byte);
    }
    const std::int64_t rest = count % per_byte;
    unsigned byte = 0;
    for (std::int64_t k = 0; k < rest; ++k) byte |= (codes[count - rest + k] & mask) << (k * bits);
    if (rest) bytes[count / per_byte] = static_cast<std::uint8_t>(byte);
}

template <int bits>
void unpack_codes(const std::uint8_t* HALFSTEP_RESTRICT bytes, std::int64_t count, unsigned sign,
                  std::uint8_t* HALFSTEP_RESTRICT codes) {
    constexpr int per_byte = 8 / bits;
    constexpr unsigned mask = (1u << bits) - 1;
    // Flipping the sign bit and subtracting it again extends it into the upper bits.
    const auto code = [=](std::int64_t i, int k) {
        return static_cast<std::uint8_t>(((bytes[i] >> (k * bits) & mask) ^ sign) - sign);
    };
    for (std::int64_t i = 0; i < count / per_byte; ++i) {
        for (int k = 0; k < per_byte; ++k) codes[i * per_byte + k] = code(i, k);
    }
    const std::int64_t whole = count / per_byte * per_byte;
    for (std::int64_t i = whole; i < count; ++i)
        codes[i] = code(i / per_byte, static_cast<int>(i - whole));
}

void pack(const std::uint8_t* codes, std::int64_t count, int bits, std::uint8_t* bytes) {
    bits == 4 ? pack_codes<4>(codes, count, bytes) : pack_codes<2>(codes, count, bytes);
}

void unpack(const std::uint8_t* bytes, std::int64_t count, int bits, bool is_signed,
            std::uint8_t* codes) {
    const unsigned sign = is_signed ? 1u << (bits - 1) : 0u;
    bits == 4 ? unpack_codes<4>(bytes, count, sign, codes)
              : unpack_codes<2>(bytes, count, sign, codes);
}

}  // namespace
}  // namespace halfstep
