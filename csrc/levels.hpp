// Which instruction levels this build has, which of them the processor runs, and which is in use.
#pragma once

#include <string>
#include <vector>

#include "job.hpp"

namespace halfstep {

// The levels that this processor runs, best first; the last one is "baseline".
const std::vector<const Kernels*>& levels();

// The kernels in use: the best level unless another was chosen.
const Kernels& kernels();

// Chooses a level by name; throws ArgumentError where the processor or the build lacks it.
void use_level(const std::string& name);

}  // namespace halfstep
