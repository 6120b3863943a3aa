// Splits the tiles of a plan between threads.
#pragma once

#include <vector>

#include "job.hpp"

namespace halfstep {

// How many of the allowed threads a walk over so many elements is worth.
int useful_threads(std::int64_t elements, int allowed);

// Runs the kernel with one thread for each partial result.
void run(Kernel kernel, const Job& job, std::vector<Partial>& partials);

}  // namespace halfstep
