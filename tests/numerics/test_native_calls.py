"""What the native kernels refuse, and how they fare in other processes."""

import math
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from halfstep.errors import ArgumentError, ArgumentTypeError, NonFiniteError
from halfstep.numerics import native

pytestmark = pytest.mark.skipif(not native.is_loaded(), reason=f"no kernels: {native.why_not()}")


def test_nan_is_found_on_request() -> None:
    """With ``check_nan`` a NaN raises, and names itself as the formula's error does."""
    x, scale, zero = torch.ones(5000), torch.ones(1), torch.zeros(1, dtype=torch.int32)
    assert native.quantize(x, scale, zero, -128, 127, torch.int8, True).eq(1).all()
    x[4321] = math.nan
    assert native.quantize(x, scale, zero, -128, 127, torch.int8)[4321] == 0
    with pytest.raises(NonFiniteError, match="x holds 1 NaN in 5000 values"):
        native.quantize(x, scale, zero, -128, 127, torch.int8, True)


ONES, ZERO = torch.ones(4, 6), torch.zeros(1, 1, dtype=torch.int32)
BAD_CALLS: dict[str, tuple[tuple[object, ...], type[Exception], str]] = {
    "scale shape": (
        (ONES, torch.ones(1, 4), ZERO.expand(1, 4), -128, 127, torch.int8),
        ArgumentError,
        r"scale of shape \(1, 4\) does not fit a tensor of shape \(4, 6\)",
    ),
    "scale dimensions": (
        (ONES, torch.ones(1), ZERO[0], -128, 127, torch.int8),
        ArgumentError,
        "does not fit",
    ),
    "scale dtype": (
        (ONES, ZERO.double(), ZERO, -128, 127, torch.int8),
        ArgumentTypeError,
        "scale must be float32",
    ),
    "zero point dtype": (
        (ONES, torch.ones(1, 1), ZERO.short(), -128, 127, torch.int8),
        ArgumentTypeError,
        "zero_point must be int32",
    ),
    "zero point shape": (
        (ONES, torch.ones(1, 6), ZERO, -128, 127, torch.int8),
        ArgumentError,
        "shape of scale",
    ),
    "integer x": (
        (ONES.int(), torch.ones(1, 1), ZERO, -128, 127, torch.int8),
        ArgumentTypeError,
        "x must be float16",
    ),
    "complex x": (
        (ONES + 0j, torch.ones(1, 1), ZERO, -128, 127, torch.int8),
        ArgumentTypeError,
        "not supported",
    ),
    "range": (
        (ONES, torch.ones(1, 1), ZERO, -128, 128, torch.int8),
        ArgumentError,
        r"holds \[-128, 127\]",
    ),
    "reversed range": (
        (ONES, torch.ones(1, 1), ZERO, 5, 4, torch.int8),
        ArgumentError,
        "qmin < qmax",
    ),
    "float codes": (
        (ONES, torch.ones(1, 1), ZERO, 0, 1, torch.float32),
        ArgumentTypeError,
        "dtype must be int8",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_refused_before_memory_is_touched(name: str) -> None:
    """Shapes, dtypes and bounds are checked beside the kernels, not only by the callers."""
    args, error, text = BAD_CALLS[name]
    with pytest.raises(error, match=text):
        native.quantize(*args)  # type: ignore[arg-type]  # wrong on purpose


def test_a_tensor_elsewhere_is_refused() -> None:
    """Only the CPU's memory has addresses that a kernel may read."""
    with pytest.raises(ArgumentError, match="outside the CPU's memory"):
        native.min_max(torch.ones(4, 6, device="meta"), (1, 1))


class Hollow(torch.Tensor):
    """A tensor subclass that holds nothing itself, so its address is null."""

    @classmethod
    def __torch_dispatch__(cls, func: object, *_: object) -> object:
        """No operator is expected."""
        raise AssertionError(func)


def test_a_tensor_without_memory_is_refused() -> None:
    """A null address is not read."""
    hollow = torch.Tensor._make_wrapper_subclass(Hollow, (4, 6))
    with pytest.raises(ArgumentError, match="without memory"):
        native.min_max(hollow, (1, 1))


def test_packing_checks_the_number_of_bytes() -> None:
    """More codes than there are bytes for would read past the end."""
    with pytest.raises(ArgumentError, match="9 codes of 4 bits are 5 bytes"):
        native.unpack(torch.zeros(4, dtype=torch.uint8), 4, True, (9,))
    with pytest.raises(ArgumentError, match="bits=3 is not packed: use 2 or 4"):
        native.unpack(torch.zeros(4, dtype=torch.uint8), 3, True, (8,))


def test_an_unknown_level_is_refused() -> None:
    """The error names the levels there are."""
    with pytest.raises(ArgumentError, match=r"use one of .*baseline"):
        native.use_level("x87")


# --- In other processes --------------------------------------------------------------------------


def run_python(code: str, **environment: str) -> str:
    """What the code prints in a Python of its own."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kernels_can_be_switched_off() -> None:
    """HALFSTEP_NATIVE=0 leaves the plain formulas, and says so."""
    code = "from halfstep.numerics import native; print(native.is_loaded(), native.why_not())"
    assert run_python(code, HALFSTEP_NATIVE="0") == "False switched off by HALFSTEP_NATIVE=0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_wait_for_its_parents_threads() -> None:
    """OpenMP's threads do not survive a fork; the child runs on one."""
    code = """
        import os, torch
        from halfstep.numerics import native
        torch.set_num_threads(2)
        x = torch.randn(1000, 1000)
        expected = native.min_max(x, (1, 1))
        child = os.fork()
        if child == 0:
            os._exit(0 if native.min_max(x, (1, 1)) == expected else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_python(code) == "0\n"
