// The kernels of one instruction level. This file is compiled once for each, with the level's
// compiler options and name. All of its code has internal linkage: a shared inline function
// compiled here for AVX-512 could otherwise be the copy that the linker keeps for everybody.
#include "kernels/between.hpp"
#include "kernels/depthwise.hpp"
#include "kernels/dequantize.hpp"
#include "kernels/fake_quantize.hpp"
#include "kernels/gates.hpp"
#include "kernels/histogram.hpp"
#include "kernels/learnable.hpp"
#include "kernels/min_max.hpp"
#include "kernels/packing.hpp"
#include "kernels/pool.hpp"
#include "kernels/quantize.hpp"
#include "kernels/rows.hpp"

namespace halfstep {

extern const Kernels HALFSTEP_KERNELS;
const Kernels HALFSTEP_KERNELS = {
    HALFSTEP_LEVEL, quantize,      dequantize, fake_quantize, mask_gradient, min_max, learnable,
    histogram,      between,       requantize, look_up,       contract,      depthwise, pool,
    mean,           quantize_rows, gates,      pack,      unpack,
};

}  // namespace halfstep
