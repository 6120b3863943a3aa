"""What bad input gets: the argument, its value, what is allowed and the way out."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError, HalfstepError
from halfstep.numerics import fake_quantize, learnable_fake_quantize
from halfstep.numerics.checks import resolve_qparams
from halfstep.spec import PerChannel, PerGroup, PerToken, QSpec, int8, uint8

X = torch.linspace(-1, 1, 64 * 3 * 8).reshape(64, 3, 8)
STEP = "allowed are finite numbers from 1.17549e-38 (the least normal float32) upwards"
NUMBERS = "is not a number of 64 bits, a list of them or a tensor"
FRACTIONAL = (
    "is fractional: a zero point is an integer code (are scale and zero_point swapped?); "
    "allowed is -128 to 127 for int8"
)
OUTSIDE = "is outside the format: allowed is -128 to 127 for int8"
FLOAT_ZERO_POINT = QSpec(uint8, float_zero_point=True)
BAD_STEPS = (0, 0.0, -1.0, math.nan, math.inf, -math.inf, 1e-40, 1e-46, 1e39)


def use(scale: Any = 0.1, zero_point: Any = 0, spec: Any = int8, axis: Any = None) -> Tensor:
    """Fake-quantize X with what is under test."""
    return fake_quantize(X, spec, axis=axis, scale=scale, zero_point=zero_point)


def refusal(error: type[HalfstepError], call: Callable[[], object]) -> str:
    """The text of the error that a call gives, which is of exactly this type."""
    with pytest.raises(HalfstepError) as caught:
        call()
    assert type(caught.value) is error
    return str(caught.value)


@pytest.mark.parametrize("scale", BAD_STEPS)
def test_a_scale_that_is_no_step(scale: float) -> None:
    """0, negative, NaN, Inf, subnormal, or beyond float32: the value as it was given."""
    text = f"scale={scale:g} is not a step: {STEP}"
    assert refusal(ArgumentError, lambda: use(scale)) == text
    assert refusal(ArgumentError, lambda: use([scale] * 3, axis=1)) == text
    among = torch.full((1, 3, 1), 0.1, dtype=torch.float64)
    among[0, 1] = scale
    assert refusal(ArgumentError, lambda: use(among, axis=1)) == text


@pytest.mark.parametrize(
    ("zero_point", "spec", "text"),
    [
        (0.1, int8, f"zero_point=0.1 {FRACTIONAL}"),
        (torch.tensor(0.25), int8, f"zero_point=0.25 {FRACTIONAL}"),
        (300, int8, f"zero_point=300 {OUTSIDE}"),
        (-129, int8, f"zero_point=-129 {OUTSIDE}"),
        (math.nan, int8, f"zero_point=nan {OUTSIDE}"),
        (-math.inf, int8, f"zero_point=-inf {OUTSIDE}"),
        (torch.tensor(200, dtype=torch.uint8), int8, f"zero_point=200 {OUTSIDE}"),
        (torch.tensor(2**63 - 1), int8, f"zero_point=9223372036854775807 {OUTSIDE}"),
        (
            101,
            int8.within(-100, 100),
            "zero_point=101 is outside the format: allowed is -100 to 100 for int8[-100, 100]",
        ),
        (
            -128,
            QSpec(int8, narrow_range=True),
            "zero_point=-128 is outside the format: allowed is -127 to 127 for int8",
        ),
        (
            3,
            QSpec(int8, symmetric=True),
            "zero_point=3 is outside the format: allowed is 0, since the format is symmetric",
        ),
        (
            math.nan,
            FLOAT_ZERO_POINT,
            "zero_point=nan is not finite: allowed are finite float32 numbers",
        ),
        (
            1e300,
            FLOAT_ZERO_POINT,
            "zero_point=1e+300 is not finite: allowed are finite float32 numbers",
        ),
        (
            None,
            int8,
            (
                "zero_point is missing: QSpec(int8) is not symmetric, so give zero_point= beside "
                "scale= (0 when there is no offset)"
            ),
        ),
    ],
)
def test_a_zero_point_that_is_no_code(zero_point: object, spec: object, text: str) -> None:
    """Fractional, out of range, not finite or missing."""
    assert refusal(ArgumentError, lambda: use(0.1, zero_point, spec)) == text


def test_swapped_qparams_are_recognised() -> None:
    """A fractional zero point beside a whole scale: the text asks whether they are swapped."""
    assert refusal(ArgumentError, lambda: use(3, 0.1)) == f"zero_point=0.1 {FRACTIONAL}"


@pytest.mark.parametrize("name", ["scale", "zero_point"])
@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("0.1", f"='0.1' {NUMBERS}"),
        ([0.1, "a"], f"=[0.1, 'a'] {NUMBERS}"),
        ([[0.1], [0.2, 0.3]], f"=[[0.1], [0.2, 0.3]] {NUMBERS}"),
        (2**70, f"={2**70} {NUMBERS}"),
        (True, " is torch.bool: give real numbers"),
        (torch.tensor([True]), " is torch.bool: give real numbers"),
        (1j, " is torch.complex64: give real numbers"),
        (torch.tensor(1j), " is torch.complex64: give real numbers"),
    ],
)
def test_qparams_that_are_no_real_numbers(name: str, value: object, what: str) -> None:
    """Text, ragged lists, booleans, complex numbers, integers beyond 64 bits."""
    given: dict[str, Any] = {"scale": 0.1, "zero_point": 0, name: value}
    assert refusal(ArgumentTypeError, lambda: use(**given)) == f"{name}{what}"


@pytest.mark.parametrize(
    ("count", "spec", "axis", "text"),
    [
        (3, int8, 0, "3 scales, but axis 0 has 64 channels; axis 1 has 3"),
        (64, int8, 1, "64 scales, but axis 1 has 3 channels; axis 0 has 64"),
        (7, int8, 0, "7 scales, but axis 0 has 64 channels: give one for each"),
        (0, int8, 0, "0 scales, but axis 0 has 64 channels: give one for each"),
        (
            3,
            int8,
            None,
            (
                "3 scales, but per-tensor quantization has one; axis 1 has 3: "
                "for one per channel pass axis=1"
            ),
        ),
        (7, int8, None, "7 scales, but per-tensor quantization has one: give one number"),
        (
            2,
            QSpec(int8, PerGroup(2, 4)),
            None,
            (
                "2 scales, but PerGroup(axis=2, size=4) of a (64, 3, 8) tensor needs shape "
                "(64, 3, 2) or one number"
            ),
        ),
        (
            3,
            QSpec(int8, PerToken()),
            None,
            "3 scales, but PerToken() of a (64, 3, 8) tensor needs shape (64, 3, 1) or one number",
        ),
    ],
)
def test_a_wrong_number_of_qparams(count: int, spec: Any, axis: int | None, text: str) -> None:
    """The text names the axis that fits, when there is one."""
    scale, zero_point = [0.1] * count, [0] * count
    assert refusal(ArgumentError, lambda: use(scale, 0, spec, axis)) == text
    text = text.replace("scales", "zero_points")
    assert refusal(ArgumentError, lambda: use(0.1, zero_point, spec, axis)) == text


def test_a_wrong_shape_of_qparams() -> None:
    """A tensor of more dimensions must have exactly the shape of ``scale``."""
    text = (
        "scale has shape (64, 1), but PerChannel(axis=0) of a (64, 3, 8) tensor needs shape "
        "(64, 1, 1) or one number"
    )
    assert refusal(ArgumentError, lambda: use(torch.ones(64, 1), axis=0)) == text


@pytest.mark.parametrize(
    ("axis", "error", "text"),
    [
        (3, ArgumentError, "axis=3 is not an axis of a 3-dimensional tensor: allowed is -3 to 2"),
        (-4, ArgumentError, "axis=-4 is not an axis of a 3-dimensional tensor: allowed is -3 to 2"),
        (1.0, ArgumentTypeError, "axis=1.0 is not an integer: give a position such as 0 or -1"),
        (True, ArgumentTypeError, "axis=True is not an integer: give a position such as 0 or -1"),
    ],
)
def test_an_axis_that_is_not_there(axis: object, error: type[HalfstepError], text: str) -> None:
    """Out of range, or not a position at all."""
    assert refusal(error, lambda: use(axis=axis)) == text


def test_an_axis_said_twice() -> None:
    """A QSpec says its granularity itself."""
    text = (
        "axis=1 is given beside QSpec(int8), which says its granularity itself: leave out axis, "
        "or give only the dtype"
    )
    assert refusal(ArgumentError, lambda: use(spec=QSpec(int8), axis=1)) == text


def test_a_group_size_that_does_not_divide() -> None:
    """The text suggests a divisor."""
    text = (
        "group size 3 does not divide axis 2, which has 8 values: use a divisor such as 2, "
        "or pad the axis"
    )
    spec = QSpec(int8, PerGroup(-1, 3))
    assert refusal(GranularityError, lambda: use(spec=spec)) == text
    assert refusal(GranularityError, lambda: fake_quantize(X, spec)) == text


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (
            torch.ones(2, dtype=torch.int64),
            (
                "takes floats, and x is torch.int64: use hs.from_int_repr for integers that are "
                "quantized already, or x.float()"
            ),
        ),
        (
            torch.ones(2, dtype=torch.complex64),
            "takes floats, and x is torch.complex64: quantize x.real and x.imag",
        ),
        (
            nn.Linear(2, 2),
            (
                "takes a tensor, and x is a module (Linear): quantize its tensors one by one; "
                "whole models go to hs.ptq.quantize"
            ),
        ),
        ([1.0], "takes a torch tensor, and x is a list: wrap it in torch.tensor()"),
        (None, "takes a torch tensor, and x is a NoneType: wrap it in torch.tensor()"),
        (
            torch.eye(2).to_sparse(),
            "takes dense tensors, and x is sparse_coo: convert it, or quantize its parts",
        ),
        (
            torch.eye(2).to_mkldnn(),
            "takes dense tensors, and x is _mkldnn: convert it, or quantize its parts",
        ),
    ],
)
def test_an_x_that_is_no_float_tensor(x: Any, text: str) -> None:
    """Integers, complex numbers, a module, a list, nothing, and layouts that are not dense."""
    text = f"fake_quantize {text}"
    assert refusal(ArgumentTypeError, lambda: fake_quantize(x, int8)) == text


def test_a_zero_point_without_a_scale() -> None:
    """Half of the qparams cannot be used."""
    text = "zero_point is given without scale: give both, or neither"
    assert refusal(ArgumentError, lambda: fake_quantize(X, int8, zero_point=0)) == text


def test_learnable_qparams_have_the_full_shape() -> None:
    """What is trained is neither converted nor expanded, so its form is prescribed."""
    good: dict[str, Any] = {"scale": torch.ones(1, 1, 1), "zero_point": torch.zeros(1, 1, 1)}
    learnable_fake_quantize(X, QSpec(int8), **good)
    wanted = "a learnable one for PerTensor() of a (64, 3, 8) tensor is float32 of shape (1, 1, 1)"
    for name in good:
        for value in (torch.ones(1), torch.ones(1, 1, 1, dtype=torch.float64)):
            given = {**good, name: value}
            text = f"{name} has shape {tuple(value.shape)} and dtype {value.dtype}: {wanted}"
            call = partial(learnable_fake_quantize, X, QSpec(int8), **given)
            assert refusal(ArgumentError, call) == text
    text = "scale=0.1 is not a tensor: give one that is trained"
    call = partial(learnable_fake_quantize, X, QSpec(int8), **{**good, "scale": 0.1})
    assert refusal(ArgumentTypeError, call) == text


def test_the_callers_tensors_are_copied() -> None:
    """Changing a scale or zero point later does not change what they were resolved to."""
    scale, zero_point = torch.full((1, 3), 0.5), torch.zeros(1, 3, dtype=torch.int32)
    spec, shape = QSpec(int8, PerChannel(1)), torch.Size((2, 3))
    resolved = resolve_qparams(shape, spec, scale, zero_point, scale.device)
    scale.fill_(2.0)
    zero_point.fill_(7)
    assert [tensor.unique().tolist() for tensor in resolved] == [[0.5], [0]]
