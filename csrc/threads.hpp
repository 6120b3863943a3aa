// Splits the tiles of a plan between threads.
#pragma once

#include <functional>
#include <vector>

#include "job.hpp"

namespace halfstep {

// How many of the allowed threads a walk over so many elements is worth.
int useful_threads(std::int64_t elements, int allowed);

// The same for any work, of which a thread has to have so much.
int threads_for_work(std::int64_t work, std::int64_t least, int allowed);

// Calls body(part, parts) with one thread for each part.
void run_parts(int threads, const std::function<void(std::int64_t, std::int64_t)>& body);

// Runs the kernel with one thread for each partial result.
void run(Kernel kernel, const Job& job, std::vector<Partial>& partials);

}  // namespace halfstep
