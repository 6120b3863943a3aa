"""ONNX Runtime and OpenVINO as engines: the same calls, structures and errors."""

import builtins
import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from halfstep.engines import ENGINES, by_name, installed
from halfstep.engines.difference import difference
from halfstep.errors import ArgumentError, MissingExtraError
from halfstep.graph.trees import join
from tests.engines.calibrated import Calibrated, calibrated, flat, in_float
from tests.engines.running import reference
from tests.graph.zoo import Block, rand
from tests.graph.zoo_cases import WHOLE, made

OTHERS = ("onnxruntime", "openvino")


def block() -> tuple[Calibrated, torch.Tensor]:
    """A small quantized CNN and its input."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()
    x = rand(4, 3, 12, 12)
    return calibrated(model, (x,)), x


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_cnn_is_as_the_formulas_say(name: str, threads: int) -> None:
    """Within two steps of the edge before the last layer; on both numbers of threads."""
    chosen, x = block()
    torch.set_num_threads(threads)
    plan = by_name(name).plan(chosen.quantized, chosen.module)
    inputs = chosen.given((x,))
    assert plan.takes(inputs)
    expected = flat(reference(chosen.quantized, chosen.module, inputs))
    step = max(edge.scale for edge in chosen.quantized.edges.values())
    apart = difference(expected, flat(plan.run(chosen.module, inputs)), step=step)
    assert apart.steps is not None
    assert apart.steps <= 2
    assert apart.sqnr > 30


@pytest.mark.parametrize("name", OTHERS)
def test_outputs_have_the_users_structure(name: str) -> None:
    """Dicts, named tuples, dataclasses and numbers, as forward returns them."""
    case = WHOLE["outputs"]
    model, (args, kwargs) = made(case), case.arguments()[0]
    plain = in_float(model, args, kwargs)
    found = (
        by_name(name)
        .plan(plain.quantized, plain.module)
        .run(plain.module, plain.given(args, kwargs))
    )
    expected = model(*args, **kwargs)
    assert found.keys() == expected.keys()
    assert type(found["pair"]) is type(expected["pair"])
    assert type(found["answer"]) is type(expected["answer"])
    assert found["answer"].note == "fine"
    assert found["rows"] == expected["rows"]
    assert type(found["rows"]) is int
    assert found["list"][1] is None
    torch.testing.assert_close(found["pair"].first, expected["pair"].first)


@pytest.mark.parametrize("name", OTHERS)
def test_a_changed_parameter_is_noticed(name: str) -> None:
    """What is written into a parameter counts from the next run on."""
    plain = in_float(nn.Linear(4, 3), (rand(2, 4),))
    plan = by_name(name).plan(plain.quantized, plain.module)
    inputs = plain.given((rand(2, 4),))
    before = plan.run(plain.module, inputs)
    with torch.no_grad():
        plain.module.bias.add_(1)
    torch.testing.assert_close(plan.run(plain.module, inputs), before + 1)


@pytest.mark.parametrize("name", OTHERS)
def test_results_are_the_callers_own(name: str) -> None:
    """A second run does not write into what the first returned."""
    plain = in_float(nn.Linear(4, 3), (rand(2, 4),))
    plan = by_name(name).plan(plain.quantized, plain.module)
    first = plan.run(plain.module, plain.given((rand(2, 4),)))
    kept = first.clone()
    plan.run(plain.module, plain.given((rand(2, 4) + 1,)))
    assert torch.equal(first, kept)


@pytest.mark.parametrize("name", OTHERS)
def test_arguments_of_another_kind_are_refused(name: str) -> None:
    """As by every other engine."""
    plain = in_float(nn.Linear(4, 3), (rand(2, 4),))
    plan = by_name(name).plan(plain.quantized, plain.module)
    assert not plan.takes(plain.given((rand(2, 4).long(),)))
    with pytest.raises(ArgumentError, match="captured for"):
        plan.run(plain.module, plain.given((rand(2, 5),)))


def test_the_hook_sees_what_is_returned() -> None:
    """And may put something else in its place."""
    plain = in_float(nn.Linear(4, 3), (rand(2, 4),))
    plan = by_name("onnxruntime").plan(plain.quantized, plain.module)
    seen: list[str] = []

    def hook(step: Any, value: torch.Tensor) -> torch.Tensor:
        seen.append(step.op)
        return value * 0

    assert not plan.run(plain.module, plain.given((rand(2, 4),)), hook).any()
    assert seen == ["aten.linear.default"]


@pytest.mark.parametrize("name", ENGINES)
def test_engines_are_plain_data(name: str) -> None:
    """Equal after copying and pickling, and called by their name."""
    engine = by_name(name)
    assert engine.name == name == engine.capabilities.engine
    assert copy.deepcopy(engine) == engine == pickle.loads(pickle.dumps(engine))


def test_an_unknown_engine_is_refused() -> None:
    """With the names that there are."""
    with pytest.raises(ArgumentError, match="engine='tensorrt' is not an engine: use one of torch"):
        by_name("tensorrt")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("onnxruntime", "onnxruntime", r"halfstep\[onnx\]"),
        ("onnxruntime", "onnx", r"halfstep\[onnx\]"),
        ("openvino", "openvino", r"halfstep\[openvino\]"),
    ],
)
def test_a_missing_package_is_an_error_that_names_the_extra(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the engine is not among the installed."""
    original = builtins.__import__

    def without(wanted: str, *args: Any, **kwargs: Any) -> Any:
        if wanted == package:
            raise ImportError(wanted)
        return original(wanted, *args, **kwargs)

    plain = in_float(nn.Linear(4, 3), (rand(2, 4),))
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=f"pip install '{extra}'"):
        by_name(name).plan(plain.quantized, plain.module)


def test_installed_engines_run() -> None:
    """All that are named can plan."""
    plain = in_float(nn.Linear(4, 3), (rand(2, 4),))
    inputs = plain.given((rand(2, 4),))
    for name in installed():
        found = by_name(name).plan(plain.quantized, plain.module).run(plain.module, inputs)
        torch.testing.assert_close(found, plain.module(*join(inputs).values()))
