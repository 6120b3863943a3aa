// What the two files of the binding share.
#pragma once

#include <nanobind/nanobind.h>

#include "view.hpp"

namespace halfstep {

// The element type of a torch dtype; throws ArgumentTypeError for one that no kernel reads.
DType dtype_named(nanobind::handle dtype);

View view_of(nanobind::handle tensor);

// The calls between integers.
void bind_integer(nanobind::module_& module);

}  // namespace halfstep
