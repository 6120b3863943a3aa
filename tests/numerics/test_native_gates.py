"""The native gates are the formulas, at every instruction level."""

import math
from collections.abc import Iterator

import pytest
import torch

from halfstep.numerics import native, native_gates, recurrent
from tests.assertions import assert_same_bits

if not native.is_loaded():
    pytest.skip("without native kernels", allow_module_level=True)


@pytest.fixture(params=native.levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each level in turn, and the best one again in the end."""
    native.use_level(request.param)
    yield request.param
    native.use_level(native.levels()[0])


@pytest.mark.parametrize("size", [1, 7, 64, 100])
@pytest.mark.parametrize("name", ["lstm_gates", "gru_gates", "tanh_gates"])
def test_gates(name: str, size: int, level: str) -> None:
    """Sums of all magnitudes, infinities and NaN among them, in vectors and their tails."""
    torch.manual_seed(0)
    parts = {"lstm_gates": 4, "gru_gates": 3, "tanh_gates": 1}[name]
    shape = (50, parts * size)
    xi = torch.randn(shape) * torch.exp2(torch.randint(-20, 8, shape).float())
    hh = torch.randn(shape)
    for row, value in enumerate((math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -200.0)):
        xi[row, :: row + 1] = value
    hh[:8, ::2] = 0.0
    state = (torch.randn(50, size), torch.randn(50, size))
    got, want = (getattr(home, name)(xi, hh, state) for home in (native_gates, recurrent))
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one.isnan(), other.isnan())
        assert_same_bits(one.nan_to_num(7.0), other.nan_to_num(7.0))
