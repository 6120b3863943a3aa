"""What is captured, what is not, and that capturing leaves no trace."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.graph.capture import capture
from halfstep.graph.product import product
from tests.flows.models import assert_same, snapshot
from tests.graph import zoo
from tests.graph.zoo import rand, tokens


def test_the_model_is_not_changed() -> None:
    """Neither a capture that succeeds nor one that fails leaves a trace, in either mode."""
    for make, x in ((zoo.Block, rand(2, 3, 8, 8)), (zoo.Greedy, tokens(1, 5))):
        for mode in (True, False):
            model = make().train(mode)
            before, state = snapshot(model), torch.get_rng_state()
            capture(model, (x,))
            assert_same(before, snapshot(model))
            assert torch.equal(torch.get_rng_state(), state)


def test_reasons_name_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    """For what stays Python the reader learns where, and torch prints no graph of it."""
    captured = capture(zoo.Branching().eval(), (rand(2, 3, 8, 8),))
    reason = captured.regions[0].reason
    assert reason.startswith("its Python code depends on the values of a tensor: `return y if")
    assert "(zoo.py, line " in reason
    assert str(captured).splitlines()[1] == "body: 8 steps"
    assert capfd.readouterr() == ("", "")


def test_a_function_may_run_the_model() -> None:
    """A loop of the user's own: a whole model, or the parts that it calls."""
    whole = capture(zoo.Tied().eval(), run=lambda model: model(tokens(2, 5)))
    assert list(whole.programs) == [""]
    parts = capture(zoo.Tied().eval(), run=lambda model: model.encode(tokens(2, 5)))
    assert list(parts.programs) == ["embedding"]
    assert [region.reason for region in parts.regions if not region.programs] == [
        "it was not called when the model ran",
        "it was not called when the model ran",
    ]


def test_a_module_called_in_two_ways_has_two_programs() -> None:
    """The kind of the arguments picks the program."""
    model = zoo.Greedy().eval()
    captured = capture(model, (tokens(1, 5),))
    assert len(captured.programs["embedding"]) == 2
    assert "embedding: 1 or 1 steps" in str(captured)
    twin = product(model, captured)
    with pytest.raises(hs.ArgumentTypeError, match=r"captured with torch\.int64"):
        twin.embedding(torch.ones(2))


def test_sizes_that_python_asks_for_are_conditions() -> None:
    """A branch on a size is right where it was captured, and an error elsewhere."""
    model = zoo.Branches()
    twin = product(model, capture(model, (rand(2, 6),)))
    for size in ((1, 6), (5, 9)):
        assert torch.equal(twin(rand(*size)), model(rand(*size)))
    with pytest.raises(hs.ArgumentError, match=r"x \(2, 4\), but .* captured for x.size\(1\) > 4"):
        twin(rand(2, 4))


class Lonely(nn.Module):
    """Python that treats a batch of one differently."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over the batch, if there is one."""
        return x - x.mean(0) if x.shape[0] > 1 else x


def test_a_size_of_one_is_tried_out() -> None:
    """Tracing never asks whether a size is 1; the program does not take it on trust."""
    twin = product(Lonely(), capture(Lonely(), (rand(4, 6),)))
    assert torch.equal(twin(rand(2, 1)), Lonely()(rand(2, 1)))
    with pytest.raises(hs.ArgumentError, match=r"captured for x.size\(0\) >= 2"):
        twin(rand(1, 6))


def test_caution_about_small_images_is_tried_out() -> None:
    """Tracing excludes images that end as a single pixel; they are served nevertheless."""
    model = nn.Sequential(*[nn.Conv2d(3, 3, 3, 2, 1) for _ in range(3)]).eval()
    twin = product(model, capture(model, (rand(1, 3, 64, 64),)))
    for size in ((1, 3, 8, 8), (2, 3, 8, 40), (1, 3, 5, 3), (3, 3, 1, 1)):
        assert torch.equal(twin(rand(*size)), model(rand(*size)))


class Threshold(nn.Module):
    """Python that treats short inputs differently, but for the shortest."""

    def forward(self, x: Tensor) -> Tensor:
        """Cumulative sums of long rows."""
        return x.cumsum(1) if x.shape[1] > 5 else x


def test_a_question_is_not_dropped_for_one_size_that_agrees() -> None:
    """At a length of 1 both branches agree; at 3 they do not."""
    twin = product(Threshold(), capture(Threshold(), (rand(2, 6),)))
    with pytest.raises(hs.ArgumentError, match=r"x.size\(1\) > 5"):
        twin(rand(2, 4))


def test_a_fixed_size_is_an_error_elsewhere() -> None:
    """A view with a number for the batch takes that batch only."""
    model = zoo.Formula(lambda x: x.view(3, 2, 3))
    captured = capture(model, (rand(3, 6),))
    twin = product(model, captured)
    assert torch.equal(twin(rand(3, 6)), model(rand(3, 6)))
    with pytest.raises((hs.ArgumentError, RuntimeError)):
        twin(rand(4, 6))


class Counting(nn.Module):
    """Python state that changes from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Add the number of calls."""
        self.calls += 1
        return x + self.calls


def test_a_program_that_differs_is_not_kept() -> None:
    """Every program is compared with the module before it is handed out."""
    captured = capture(Counting(), (rand(2, 3),))
    assert not captured.programs
    assert "computes something else than forward" in captured.regions[0].reason


def test_what_no_program_can_return_stays_python() -> None:
    """An object of the user's own is not guessed at."""

    class Strange(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return {"x": x, "self": object()}

    captured = capture(Strange(), (rand(2, 3),))
    assert captured.regions[0].reason.startswith("forward returns a object")


def test_wrong_arguments_are_the_callers_error() -> None:
    """They are told as such, and not as a reason to keep Python."""
    with pytest.raises(hs.ArgumentTypeError, match="does not take these arguments"):
        capture(nn.Linear(2, 2), (rand(2, 2), 3))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        capture(nn.Linear(2, 2), (rand(2, 3),))
