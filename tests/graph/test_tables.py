"""Which steps are tables, and that a table is the operator in float64 at every code."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from halfstep.graph.edges import Edge
from halfstep.graph.integer_tables import prelu_table
from halfstep.graph.program import Step
from halfstep.graph.tables import is_tabled, table_of
from halfstep.graph.trees import Value
from halfstep.spec import QSpec, int8, int16, uint8

X = Value("x")
SOURCE, TARGET = Edge(QSpec(uint8), 0.05, 120), Edge(QSpec(int8, narrow_range=True), 0.03, -20)
CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("aten.sigmoid.default", (X,), lambda x: 1 / (1 + torch.exp(-x))),
    ("aten.tanh.default", (X,), torch.tanh),
    ("aten.silu.default", (X,), lambda x: x / (1 + torch.exp(-x))),
    ("aten.gelu.default", (X,), lambda x: x * 0.5 * torch.erfc(-x / 2**0.5)),
    ("aten.hardswish.default", (X,), lambda x: x * (x + 3).clamp(0, 6) / 6),
    ("aten.hardsigmoid.default", (X,), lambda x: (x + 3).clamp(0, 6) / 6),
    ("aten.mish.default", (X,), lambda x: x * torch.tanh(torch.log1p(torch.exp(x)))),
    ("aten.softplus.default", (X, 2.0, 20.0), lambda x: torch.log1p(torch.exp(2 * x)) / 2),
    ("aten.elu.default", (X, 0.7), lambda x: torch.where(x > 0, x, 0.7 * torch.expm1(x))),
    (
        "aten.elu.default",
        (X, 1.5, 2.0, 0.5),
        lambda x: torch.where(x > 0, 2 * x, 3 * torch.expm1(x / 2)),
    ),
    ("aten.selu.default", (X,), F.selu),
    ("aten.celu.default", (X, 0.5), lambda x: torch.where(x > 0, x, torch.expm1(x / 0.5) / 2)),
    ("aten.leaky_relu.default", (X, 0.2), lambda x: torch.maximum(x, 0.2 * x)),
    ("aten.log_sigmoid.default", (X,), lambda x: -torch.log1p(torch.exp(-x))),
    ("aten.softshrink.default", (X, 0.4), lambda x: x - x.clamp(-0.4, 0.4)),
    ("aten.hardshrink.default", (X, 0.4), lambda x: x * (x.abs() > 0.4)),
    ("aten.threshold.default", (X, 0.1, 2.0), lambda x: torch.where(x > 0.1, x, 2.0)),
    ("aten.exp.default", (X,), torch.exp),
    ("aten.abs.default", (X,), torch.abs),
    ("aten.neg.default", (X,), lambda x: -x),
    ("aten.sqrt.default", (X,), lambda x: x.clamp(min=0) ** 0.5),
    ("aten.add.Tensor", (X, 1.5), lambda x: x + 1.5),
    ("aten.sub.Tensor", (X, 1.5), lambda x: x - 1.5),
    ("aten.rsub.Scalar", (X, 1.5), lambda x: 1.5 - x),
    ("aten.mul.Tensor", (X, -2), lambda x: -2 * x),
    ("aten.mul.Tensor", (X, X), torch.square),
    ("aten.div.Tensor", (X, 3.0), lambda x: x / 3),
    ("aten.pow.Tensor_Scalar", (X, 3), lambda x: x * x * x),
    ("aten.pow.Scalar", (2.0, X), torch.exp2),
    ("aten.relu6.default", (X,), lambda x: x.clamp(0, 6)),
]


def values_of(edge: Edge) -> torch.Tensor:
    """What the 256 codes of an 8-bit edge stand for."""
    lowest = torch.iinfo(edge.storage).min
    scale = torch.tensor(edge.scale).double()
    return (torch.arange(256, dtype=torch.float64) + lowest - edge.zero_point) * scale


def codes_of(y: torch.Tensor, edge: Edge) -> torch.Tensor:
    """Quantized in float64."""
    codes = (y / torch.tensor(edge.scale).double()).round() + edge.zero_point
    return codes.clamp(edge.qmin, edge.qmax)


@pytest.mark.parametrize(("op", "args", "function"), CASES, ids=[case[0] for case in CASES])
def test_tables_are_the_functions(op: str, args: tuple[Any, ...], function: Any) -> None:
    """Every entry is the written formula's, in codes of the narrowed result."""
    table = table_of(Step("y", op, args), SOURCE, TARGET)
    assert table is not None
    assert table.dtype == torch.int8
    wanted = codes_of(function(values_of(SOURCE)), TARGET)
    beside = codes_of(function(values_of(SOURCE)) + 1e-12, TARGET)
    # A tie may fall to either side where the formulas differ in their last bit.
    assert ((table.double() == wanted) | (table.double() == beside)).all()


def test_arguments_by_name() -> None:
    """GELU by tanh is another function than GELU."""
    step = Step("y", "aten.gelu.default", (X,), (("approximate", "tanh"),))
    target = Edge(QSpec(int16), 1e-4, 0)
    table, exact = (
        table_of(one, SOURCE, target) for one in (step, Step("y", "aten.gelu.default", (X,)))
    )
    assert table is not None
    assert exact is not None
    wanted = codes_of(F.gelu(values_of(SOURCE), approximate="tanh"), target)
    assert torch.equal(table.double(), wanted)
    assert not torch.equal(table, exact)


def test_slopes_in_each_channel() -> None:
    """PReLU has a row for each slope, or one table for one slope."""
    slopes = torch.tensor([0.25, -0.5, 2.0])
    table = prelu_table(slopes, SOURCE, TARGET)
    x = values_of(SOURCE)
    wanted = [codes_of(F.prelu(x, slope.view(1).double()), TARGET) for slope in slopes]
    assert torch.equal(table.double(), torch.stack(wanted))
    assert torch.equal(prelu_table(slopes[:1], SOURCE, TARGET), table[0])


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("aten.mul.Tensor", (X, Value("other"))),
        ("aten.softmax.int", (X, -1, None)),
        ("aten.rrelu.default", (X,)),
        ("operator.mul", (X, 2)),
        ("int.table", (X, Value("table"))),
    ],
)
def test_what_has_no_table(op: str, args: tuple[Any, ...]) -> None:
    """Two variables, whole rows, random numbers, sizes."""
    step = Step("y", op, args)
    assert not is_tabled(step)
    assert table_of(step, SOURCE, TARGET) is None


def test_codes_of_16_bits_have_none() -> None:
    """A table has 256 entries; its results may have 16 bits."""
    step = Step("y", "aten.sigmoid.default", (X,))
    assert table_of(step, Edge(QSpec(int16), 0.1, 0), TARGET) is None
    assert table_of(step, SOURCE, Edge(QSpec(int16), 1e-4, 0)) is not None
