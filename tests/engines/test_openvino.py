"""What OpenVINO is told beside the graph: sizes, and how dynamic layers find their scales."""

import threading

import pytest
import torch
from torch import nn

import halfstep as hs
from halfstep.engines.openvino import OpenVinoEngine, in_groups
from halfstep.graph.quantized import Execution, Quantized
from halfstep.spec.recipe import Recipe


def mlp() -> nn.Sequential:
    """Linear layers wide enough for several groups."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 256), nn.GELU(), nn.Linear(256, 384)).eval()


def part_of(result: hs.Result) -> Quantized:
    """The one program of a result."""
    ((part,),) = result.parts.values()
    assert isinstance(part, Quantized)
    return part


def run_on_openvino(recipe: Recipe, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the float model and the quantized one return."""
    model = mlp()
    result = hs.ptq.quantize(model, x, recipe)
    with torch.no_grad():
        return model(x), hs.deploy(result, engine="openvino")(x)


def test_dynamic_rows_do_not_meet() -> None:
    """A row's result does not depend on the rows beside it, even on one a thousand times larger."""
    x = torch.randn(8, 512)
    deployed = hs.deploy(hs.ptq.quantize(mlp(), x, hs.recipes.dynamic_int8()), engine="openvino")
    loud = torch.cat([x[:1], 1000 * x[1:]])
    assert torch.equal(deployed(x)[0], deployed(loud)[0])


def test_dynamic_layers_are_quantized_and_close() -> None:
    """Their inputs are rounded, so the result is not that of weights alone; it is close."""
    x = torch.randn(16, 512)
    expected, dynamic = run_on_openvino(hs.recipes.dynamic_int8(), x)
    _, weights = run_on_openvino(hs.recipes.weight_only(hs.int8), x)
    assert not torch.equal(dynamic, weights)
    noise = (expected - dynamic).square().sum() / expected.square().sum()
    assert noise < 1e-3  # 30 dB


def test_weight_only_layers_compute_in_float() -> None:
    """Nothing but the weights is rounded: equal to the float layers of the same integers."""
    x = torch.randn(16, 512)
    model = mlp()
    result = hs.ptq.quantize(model, x, hs.recipes.weight_only(hs.int8))
    expected = hs.deploy(result, engine="reference")(x)
    found = hs.deploy(result, engine="openvino")(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("recipe", "grouped"),
    [
        (hs.recipes.dynamic_int8(), True),
        (hs.recipes.weight_only(hs.int8), False),
        (hs.recipes.static_int8(), False),
        (hs.recipes.dynamic_int8() + hs.Rule("0", weight=hs.int8), False),
    ],
    ids=["dynamic", "weight-only", "static", "mixed"],
)
def test_groups_are_for_programs_that_are_dynamic_throughout(
    recipe: Recipe,
    grouped: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    """The property is one for the whole program, so a mixed one keeps its formulas."""
    part = part_of(hs.ptq.quantize(mlp(), torch.randn(8, 512), recipe))
    made = in_groups(part)
    assert (made is not part) == grouped
    if grouped:
        kinds = {decision.execution for decision in made.decisions.values()}
        assert Execution.DYNAMIC not in kinds


def test_any_sizes_after_the_first() -> None:
    """It is compiled for the first sizes, and then for all: results do not depend on which."""
    x = torch.randn(4, 512)
    result = hs.ptq.quantize(mlp(), x)
    first, second = (hs.deploy(result, engine="openvino") for _ in range(2))
    small, large = torch.randn(3, 512), torch.randn(9, 512)
    a = [first(small), first(large), first(small)]
    b = [second(large), second(small), second(large)]
    assert torch.equal(a[0], b[1])
    assert torch.equal(a[1], b[0])
    assert torch.equal(a[0], a[2])
    assert torch.equal(b[0], b[2])


def test_threads_that_start_together() -> None:
    """The first calls may come at once, with different sizes."""
    result = hs.ptq.quantize(mlp(), torch.randn(4, 512))
    deployed = hs.deploy(result, engine="openvino")
    inputs = [torch.randn(rows, 512) for rows in (2, 3, 5, 7)]
    expected = [hs.deploy(result, engine="openvino")(x) for x in inputs]
    found: dict[int, torch.Tensor] = {}

    def call(place: int) -> None:
        found[place] = deployed(inputs[place])

    threads = [threading.Thread(target=call, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[place], expected[place]) for place in range(4))


def test_the_engine_says_its_name() -> None:
    """By which a user asks for it."""
    assert OpenVinoEngine().name == "openvino"
