"""Programs side by side: the errors of one step, those of all steps, and nothing kept."""

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from halfstep.engines import by_name
from halfstep.graph.capture import capture
from halfstep.graph.export import arguments
from halfstep.graph.frozen import Frozen
from halfstep.graph.lockstep import LockStep, Moment, codes_of
from halfstep.graph.program import Program
from halfstep.graph.run import Plan, Walk
from halfstep.graph.trees import Branch, Value
from halfstep.numerics import ops
from tests.engines.calibrated import Calibrated, calibrated
from tests.graph.zoo import Formula, rand


def walked(
    made: Calibrated, floats: nn.Module, program: Program, x: Tensor, see: Callable[[Moment], Any]
) -> Any:
    """Run the float and the quantized form of a model side by side."""
    plan = by_name("torch").plan(made.quantized, made.module)
    steps = LockStep(Frozen(program), plan, made.quantized.edges)
    given = made.given((x,))
    return steps.run((floats, made.module), (given, given), see)


def moments(model: nn.Module, x: Tensor) -> tuple[Calibrated, dict[str, Moment]]:
    """The model calibrated on x, and its moments by the value's name."""
    model = model.eval()
    made = calibrated(model, (x,))
    found: dict[str, Moment] = {}
    walked(made, model, made.quantized.program, x, lambda m: found.setdefault(m.of.name, m))
    return made, found


def noise(one: Tensor, other: Tensor) -> float:
    """The sum of squared differences."""
    return float((one.double() - other.double()).square().sum())


def layers(count: int, size: int = 8) -> nn.Sequential:
    """Linear layers, always the same."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(size, size) for _ in range(count)))


def test_a_step_alone_works_on_float_inputs() -> None:
    """Of the second layer, what is local is its integer step on the codes of float values."""
    made, seen = moments(layers(3), rand(16, 8))
    edge = made.quantized.edges["linear"]
    weight = made.module[1].weight.floats()
    codes = codes_of(seen["linear"].expected, edge)
    given = ops.dequantize(codes, *edge.qparams(2), torch.float32)
    y = torch.nn.functional.linear(given, weight, made.module[1].bias).detach()
    out = made.quantized.edges["linear_1"]
    y = y.clamp(*((code - out.zero_point) * out.scale for code in (out.qmin, out.qmax)))
    assert (seen["linear_1"].local - y).abs().max() <= 0.51 * out.scale


def test_errors_gather_in_the_other_walk() -> None:
    """In the first layer both are the same; what is found in the end is what the model returns."""
    x = rand(16, 8)
    made, seen = moments(layers(4), x)
    assert torch.equal(seen["linear"].local, seen["linear"].found)
    last = seen["linear_3"]
    assert noise(last.expected, last.found) > noise(last.expected, last.local) > 0
    plan = by_name("torch").plan(made.quantized, made.module)
    assert torch.equal(last.found, plan.run(made.module, made.given((x,))))


def test_returns_what_the_float_program_returns() -> None:
    """To the last bit, with its containers."""
    model = Formula(lambda x: {"sum": x.sum(0), "all": (x, 2)}).eval()
    made, x = calibrated(model, (rand(3, 6),)), rand(3, 6)
    y = walked(made, model, made.quantized.program, x, lambda moment: None)
    expected = model(x)
    assert torch.equal(y["sum"], expected["sum"])
    assert torch.equal(y["all"][0], expected["all"][0])


def test_memory_does_not_grow_with_depth() -> None:
    """A chain of fifty layers never holds more than a few values, of all three walks together."""
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def see(moment: Moment) -> None:
        nonlocal most
        values = (moment.expected, moment.local, moment.found, *moment.values.values())
        alive.extend(weakref.ref(value) for value in values if isinstance(value, Tensor))
        most = max(most, len({id(x) for ref in alive if (x := ref()) is not None}))

    model = layers(50).eval()
    made = calibrated(model, (rand(4, 8),))
    walked(made, model, made.quantized.program, rand(4, 8), see)
    assert len(alive) > 150
    assert most <= 6


def test_both_see_the_same_random_numbers() -> None:
    """Noise that the model draws is no error of quantizing."""

    def noisy(x: Tensor) -> Tensor:
        return x + 100 * torch.rand_like(x)

    _, seen = moments(Formula(noisy), rand(16, 6))
    drawn = next(m for name, m in seen.items() if "rand" in name)
    total = next(m for name, m in seen.items() if name.startswith("add"))
    assert torch.equal(drawn.expected, drawn.local)
    assert noise(total.expected, total.found) < 1


def test_errors_go_through_attention() -> None:
    """Attention without dropout is as random as a product of matrices."""

    def attend(x: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    _, seen = moments(Formula(attend, 8), rand(2, 5, 8))
    found = next(m for name, m in seen.items() if name.startswith("scaled"))
    assert noise(found.expected, found.found) > 0


def test_values_that_are_asked_for_are_at_hand() -> None:
    """At a value's moment there are others that the program itself has dropped."""
    model = layers(3).eval()
    made = calibrated(model, (rand(4, 8),))
    plan = by_name("torch").plan(made.quantized, made.module)
    wanted = {"linear_2": ["linear", "input"]}
    seen: dict[str, set[str]] = {}
    steps = LockStep(Frozen(made.quantized.program), plan, made.quantized.edges, wanted=wanted)
    given = made.given((rand(4, 8),))
    steps.run(
        (model, made.module), (given, given), lambda m: seen.update({m.of.name: set(m.values)})
    )
    assert {"linear", "input", "linear_2"} <= seen["linear_2"]
    assert "linear_1" not in seen["linear_2"]


def test_without_arguments_of_before_nothing_is_found() -> None:
    """Where the quantized model never came, each step is still measured alone."""
    model, x = layers(2).eval(), rand(4, 8)
    made = calibrated(model, (x,))
    plan = by_name("torch").plan(made.quantized, made.module)
    seen: list[Moment] = []
    steps = LockStep(Frozen(made.quantized.program), plan, made.quantized.edges)
    steps.run((model, made.module), (made.given((x,)), None), seen.append)
    computed = [moment for moment in seen if not moment.of.is_conversion]
    assert [moment.found for moment in computed] == [None, None]
    assert all(isinstance(moment.local, Tensor) for moment in computed)


def stepped(walk: Walk, put: Callable[[str, Any], Any]) -> tuple[list[str], Any]:
    """The names of a walk's steps, and what it returns; ``put`` chooses what is used."""
    names, value = [], None
    try:
        while True:
            step, brought = walk.send(value)
            names.append(step.name)
            value = put(step.name, brought)
    except StopIteration as end:
        return names, end.value


def plain(model: nn.Module, args: Sequence[Any]) -> tuple[Program, Branch]:
    """The program of a model, and its arguments."""
    (program,) = capture(model, args, {}).programs[""]
    return program, arguments(inspect.signature(model.forward), args, {})


def test_a_walk_is_a_run() -> None:
    """One step at a time brings what one call does; a frozen one leaves out what is known."""
    model, x = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)).eval(), rand(2, 4)
    program, given = plain(model, (x,))
    with torch.no_grad():
        every, y = stepped(Plan(program).walk(model, given), lambda name, value: value)
        some, other = stepped(Frozen(program).walk(model, given), lambda name, value: value)
        assert torch.equal(y, model(x))
        assert torch.equal(other, y)
    assert every == [step.name for step in program.steps]
    assert some == ["linear"]


def test_what_is_sent_takes_the_place() -> None:
    """The next steps read it, and so does who is returned it."""
    model = layers(2).eval()
    program, given = plain(model, (rand(3, 8),))
    zero = torch.zeros(3, 8)
    with torch.no_grad():
        _, y = stepped(
            Plan(program).walk(model, given), lambda name, v: zero if name == "linear" else v
        )
        assert torch.equal(y, model[1](zero))
    assert isinstance(program.outputs, Value)


def test_gradients_stay_off() -> None:
    """A model that switches them on and off does not do so for what is walked beside it."""

    class Switching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                y = x * 2
            return y + x

    model = Switching()
    program, given = plain(model, (rand(3, 2),))
    with torch.no_grad():
        _, y = stepped(Plan(program).walk(model, given), lambda name, value: value)
        assert not torch.is_grad_enabled()
    assert torch.equal(y, given.children[0] * 3)
