// Integers in the order of the floats: -NaN < -Inf < ... < -0 < 0 < ... < Inf < NaN.
#pragma once

#include <cstdint>

namespace halfstep {
namespace {

using Key = std::int32_t;

constexpr Key kInfinityKey = 0x7f800000;
constexpr Key kMinusInfinityKey = -kInfinityKey - 1;

// A negative float's magnitude counts downwards, so its bits are flipped. The map is its own
// inverse.
inline Key key_of(std::uint32_t bits) {
    const Key key = static_cast<Key>(bits);
    return key ^ (key >> 31 & 0x7fffffff);
}

}  // namespace
}  // namespace halfstep
