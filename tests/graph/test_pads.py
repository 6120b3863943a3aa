"""Padding in front of a convolution is given to the convolution where that means the same."""

import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from halfstep.graph.export import arguments, export
from halfstep.graph.normalize import normalized
from halfstep.graph.pads import pads_absorbed
from halfstep.graph.program import Program
from halfstep.graph.run import Plan


class Twice(nn.Module):
    """A padded tensor that two layers read."""

    def __init__(self) -> None:
        super().__init__()
        self.pad = nn.ZeroPad2d(1)
        self.conv = nn.Conv2d(2, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of x, and x."""
        padded = self.pad(x)
        return self.conv(padded) + padded[:, :, 1:-1, 1:-1]


def programs(module: nn.Module, x: Tensor) -> tuple[Program, Program]:
    """The normalized program, and the one whose convolutions pad."""
    before = normalized(export(module, (x,)))
    return before, pads_absorbed(before)


def run(program: Program, module: nn.Module, x: Tensor) -> Tensor:
    """What a program returns."""
    given = arguments(inspect.signature(module.forward), (x,), {})
    result: Tensor = Plan(program).run(module, given)
    return result


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.ZeroPad2d((1, 1, 2, 2)), nn.Conv2d(2, 4, 3)), (2, 2, 6, 7)),
        (lambda: nn.Sequential(nn.ZeroPad2d(2), nn.Conv2d(2, 4, 3, padding=1)), (2, 2, 6, 7)),
        (lambda: nn.Sequential(nn.ConstantPad1d(2, 0.0), nn.Conv1d(2, 4, 3)), (2, 2, 6)),
        (lambda: nn.Sequential(nn.ConstantPad3d(1, 0), nn.Conv3d(2, 4, 3)), (2, 2, 4, 5, 6)),
    ],
    ids=["2d", "padded twice", "1d", "3d"],
)
def test_zeros_on_both_sides_become_the_convolutions(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    """The step that pads is gone, and the values are the same."""
    module, x = make(), torch.randn(shape)
    before, after = programs(module, x)
    assert len(after.steps) == len(before.steps) - 1
    torch.testing.assert_close(run(after, module, x), module(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(2, 4, 3)),
        lambda: nn.Sequential(nn.ConstantPad2d(1, 0.5), nn.Conv2d(2, 4, 3)),
        lambda: nn.Sequential(nn.ConstantPad2d(-1, 0.0), nn.Conv2d(2, 4, 3)),
        lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(2, 4, 3)),
        lambda: nn.Sequential(nn.ConstantPad3d((0, 0, 0, 0, 1, 1), 0.0), nn.Conv2d(4, 4, 3)),
        Twice,
    ],
    ids=["one side", "not zero", "cropped", "reflected", "channels", "read twice"],
)
def test_other_padding_stays_a_step(make: Callable[[], nn.Module]) -> None:
    """What a convolution cannot do by itself is left as it is."""
    module, x = make(), torch.randn(2, 2, 6, 7)
    before, after = programs(module, x)
    assert list(map(str, after.steps)) == list(map(str, before.steps))
