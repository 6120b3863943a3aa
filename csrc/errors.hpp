// The two errors that a call can give; the binding turns them into those of halfstep.errors.
#pragma once

#include <stdexcept>

namespace halfstep {

struct ArgumentError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

struct ArgumentTypeError : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

}  // namespace halfstep
