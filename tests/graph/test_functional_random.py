"""Random chains of views and changes in place become values."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from torch import Tensor, nn

from halfstep.graph.check import check
from halfstep.graph.export import export
from halfstep.graph.functional import functional
from halfstep.graph.in_place import is_functional
from tests.graph.passes import runner, same
from tests.graph.rewriting import Model, X
from tests.graph.zoo import rand
from tests.strategies import QUICK

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections")


@dataclass(frozen=True)
class Act:
    """One thing a program does to one of the values it has."""

    kind: str
    which: int
    number: int


VIEWS: list[Callable[[Tensor, int], Tensor]] = [
    lambda y, n: y.select(n % y.ndim, 0),
    lambda y, n: y[n % 2 :],
    lambda y, n: y.transpose(0, n % y.ndim),
    lambda y, n: y.unsqueeze(n % y.ndim),
    lambda y, n: y.permute(*range(1, y.ndim), 0),
    lambda y, n: y.unbind(0)[-1],
    lambda y, n: y.narrow(0, 0, 1),
    lambda y, n: y.reshape(-1),
    lambda y, n: y.squeeze(),
    lambda y, n: y.split(1 + n % 2)[0],
    lambda y, n: y.expand(2, *y.shape),
    lambda y, n: y.contiguous(),
    lambda y, n: y.detach(),
]
CHANGES: list[Callable[[Tensor, int], Tensor]] = [
    lambda y, n: y.relu_(),
    lambda y, n: y.add_(n),
    lambda y, n: y.mul_(y),
    lambda y, n: y.fill_(n),
    lambda y, n: y.copy_(y.flip(0)),
    lambda y, n: y.clamp_(max=n - 1),
    lambda y, n: y.masked_fill_(y > 0, n),
]
MAKERS: list[Callable[[Tensor, int], Tensor]] = [lambda y, n: y + n, lambda y, n: y.cumsum(0)]
KINDS = {"view": VIEWS, "change": CHANGES, "make": MAKERS}

acts = st.builds(
    Act,
    st.sampled_from(["view", "view", "change", "change", "make"]),
    st.integers(0, 5),
    st.integers(0, 25),
)


def acted(model: Model, x: Tensor, todo: list[Act]) -> Any:
    """Do it all; every value is returned, so that everything that is read is compared."""
    values = [x * 2, x + 1]
    for act in todo:
        value = values[act.which % len(values)]
        functions = KINDS[act.kind]
        if value.ndim:
            values.append(functions[act.number % len(functions)](value, act.number // 7))
    return tuple(value + 0 for value in values)


@pytest.mark.slow
@given(st.lists(acts, min_size=2, max_size=8))
@settings(QUICK, max_examples=80)
def test_random_chains(todo: list[Act]) -> None:
    """Random views and changes: the model's bits, or a reason."""
    model = Model(lambda self, x: acted(self, x, todo)).eval()
    x = rand(3, 4)
    try:
        expected = model(x.clone())
        program = export(model, (x,))
    except Exception:  # noqa: BLE001  (a change that torch refuses, as of expanded memory)
        return
    result = functional(program, model)
    check(result.program, model)
    assert bool(result.reasons) == (not is_functional(result.program))
    found = runner(model, result.program)(x.clone())
    assert all(map(same, expected, found)), program


def test_the_program_given_is_not_changed() -> None:
    """A pass makes a new program."""
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True))
    program = export(model, (X,))
    before = copy.copy(program.steps)
    functional(program)
    assert program.steps == before
