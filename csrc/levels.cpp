#include "levels.hpp"

#include <atomic>

#include "errors.hpp"

namespace halfstep {

extern const Kernels kernels_baseline;
#if defined(HALFSTEP_X86_LEVELS)
extern const Kernels kernels_v3;
extern const Kernels kernels_v4;
extern const Kernels kernels_vnni;
#endif

namespace {

std::vector<const Kernels*> find_levels() {
    std::vector<const Kernels*> found;
#if defined(HALFSTEP_X86_LEVELS)
    __builtin_cpu_init();
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt") &&
                    __builtin_cpu_supports("movbe");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
    if (v4 && __builtin_cpu_supports("avx512vnni")) found.push_back(&kernels_vnni);
    if (v4) found.push_back(&kernels_v4);
    if (v3) found.push_back(&kernels_v3);
#endif
    found.push_back(&kernels_baseline);
    return found;
}

std::atomic<const Kernels*>& chosen() {
    static std::atomic<const Kernels*> level{levels().front()};
    return level;
}

}  // namespace

const std::vector<const Kernels*>& levels() {
    static const std::vector<const Kernels*> found = find_levels();
    return found;
}

const Kernels& kernels() { return *chosen().load(std::memory_order_relaxed); }

void use_level(const std::string& name) {
    std::string known;
    for (const Kernels* level : levels()) {
        if (name == level->level) return chosen().store(level);
        known += (known.empty() ? "" : ", ") + std::string(level->level);
    }
    throw ArgumentError("level='" + name + "' is not one that this processor runs: use one of " +
                        known);
}

}  // namespace halfstep
