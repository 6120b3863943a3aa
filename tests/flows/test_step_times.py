"""The times of operators: each is there, under the operator that a reader knows, and flagged."""

import torch
from torch import nn

import halfstep as hs
from halfstep.flows.coverage import Coverage, Row


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A convolution around x, and the softmax of a linear layer."""
        y = torch.relu(self.norm(self.conv(x)) + x).mean((2, 3))
        return torch.softmax(self.last(y), -1)


def test_every_operator_has_its_time() -> None:
    """What is fused has one time, with the first operator; the engine runs what it ran before."""
    x = torch.randn(2, 4, 16, 16)
    result = hs.ptq.quantize(Block(), x)
    timed = result.timed(x)
    by_op = {row.op: row for row in timed.coverage}
    for op in ("conv2d", "mean", "linear", "softmax"):
        assert by_op[op].ms is not None
        assert by_op[op].ms > 0
        assert by_op[op].float_ms is not None
        assert by_op[op].float_ms > 0
    assert by_op["add"].ms is by_op["relu"].ms is None
    assert not result.coverage.is_timed
    assert torch.equal(timed.model(x), result.model(x))


def test_parts_of_a_model_are_timed() -> None:
    """Layers that were captured one by one, without data, are found by their paths."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    timed = hs.ptq.quantize(model).timed(torch.randn(4, 8))
    assert [row.ms is not None for row in timed.coverage if row.op == "linear"] == [True, True]


def test_a_slower_operator_is_flagged() -> None:
    """The table says so, where integers run; a float operator cannot be slower than itself."""
    rows = (
        Row("a", "add", "int8", "why not", value="add", float_ms=0.01, ms=0.09),
        Row("b", "add", "int8", value="add_1", float_ms=0.09, ms=0.01),
        Row("c", "exp", "float", value="exp", float_ms=0.01, ms=0.09),
    )
    assert [row.is_slower for row in rows] == [True, False, False]
    shown = str(Coverage(rows))
    assert "float ms" in shown
    assert shown.count("slower than in float; why not") == 1
    assert Coverage.from_dict(Coverage(rows).to_dict()).rows == rows


def test_a_table_without_times_has_no_columns_for_them() -> None:
    """Until they are measured."""
    assert "ms" not in str(Coverage((Row("a", "add", "int8"),)))
