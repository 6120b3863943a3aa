"""The product stays the user's object."""

import copy
import inspect
import io
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import halfstep as hs
from halfstep.graph.capture import capture
from halfstep.graph.product import product
from tests.graph import zoo
from tests.graph.zoo import rand, tokens


@pytest.fixture
def model() -> zoo.Tied:
    """A model with shared weights, an attribute and a method of its own."""
    return zoo.Tied().eval()


@pytest.fixture
def twin(model: zoo.Tied) -> nn.Module:
    """Its product."""
    return product(model, capture(model, (tokens(2, 5),)))


def test_class_methods_and_parameters_remain(model: zoo.Tied, twin: nn.Module) -> None:
    """Type, attributes, methods, signature, parameters, ties: as they were, and copies."""
    assert type(twin) is zoo.Tied
    assert twin.title == "tied"
    assert torch.equal(twin.encode(tokens(3, 4)), model.encode(tokens(3, 4)))
    assert inspect.signature(twin.forward) == inspect.signature(model.forward)
    assert twin.out.weight is twin.embedding.weight
    assert twin.get_parameter("embedding.weight") is not model.embedding.weight
    assert list(twin.state_dict()) == list(model.state_dict())


def test_the_program_reads_the_parameters_of_its_own_copy(twin: nn.Module) -> None:
    """New weights are used at once; a deepcopy and a pickle have weights of their own."""
    x = tokens(2, 5)
    before = twin(x)
    others = [copy.deepcopy(twin), pickle.loads(pickle.dumps(twin))]
    with torch.no_grad():
        twin.embedding.weight.zero_()
    assert not twin(x).any()
    assert all(torch.equal(other(x), before) for other in others)
    twin.load_state_dict(others[0].state_dict())
    assert torch.equal(twin(x), before)


def test_a_pickle_is_read_in_a_new_process(twin: nn.Module) -> None:
    """The file alone is enough, and so is ``torch.save`` of the whole object."""
    plain = nn.Sequential(nn.Linear(6, 3), nn.LSTM(3, 2)).eval()
    made = product(plain, capture(plain, (rand(4, 6),)))
    stored = io.BytesIO()
    torch.save(made, stored)
    code = (
        "import io, sys, torch; stored = io.BytesIO(sys.stdin.buffer.read());"
        "m = torch.load(stored, weights_only=False);"
        "sys.stdout.buffer.write(m(torch.ones(7, 6))[0].detach().numpy().tobytes())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=stored.getvalue(), capture_output=True, check=True)
    assert done.stdout == made(torch.ones(7, 6))[0].detach().numpy().tobytes()


def test_modes_threads_and_inference(model: zoo.Tied, twin: nn.Module) -> None:
    """``train`` and ``eval`` may be called; many threads run one product."""
    expected = model(tokens(2, 5))
    assert torch.equal(twin.train().eval()(tokens(2, 5)), expected)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(twin(tokens(2, 5)), expected)
    lengths = [*range(2, 10)] * 4
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: twin(tokens(n, 5)), lengths))
    assert all(torch.equal(y, model(tokens(n, 5))) for y, n in zip(found, lengths, strict=True))


def test_the_mode_picks_the_program() -> None:
    """Captured in both modes, the product trains as the model trains and infers as it infers."""
    model, x = zoo.Block(), rand(4, 3, 8, 8)
    captured = [capture(model.train(mode), (x,)) for mode in (True, False)]
    twin = product(model, *captured)
    for training in (True, False, True):
        results = [step(each.train(training), x.clone()) for each in (model, twin)]
        for a, b in zip(*results, strict=True):
            assert torch.equal(a, b)


def step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """One step: the output, all gradients, all buffers."""
    torch.manual_seed(0)
    y = model(x)
    gradients = torch.autograd.grad(y.square().sum(), list(model.parameters()))
    return [y, *gradients, *model.buffers()]


def test_hooks_of_the_captured_module_run(twin: nn.Module) -> None:
    """Hooks that are added afterwards see input and output."""
    seen: list[torch.Size] = []
    twin.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    twin(tokens(2, 5))
    assert seen == [(2, 5, 10)]


def test_hooks_from_before_run_once() -> None:
    """A hook of the model itself is not captured, and stays with the copy."""
    model = nn.Linear(2, 2)
    model.register_forward_hook(lambda module, args, output: output + 1)
    twin = product(model, capture(model, (rand(3, 2),)))
    assert torch.equal(twin(rand(3, 2)), model(rand(3, 2)))


def test_other_arguments_are_explained(twin: nn.Module) -> None:
    """Another dtype, or a wrong call, is an error that says what was captured."""
    with pytest.raises(
        hs.ArgumentTypeError, match=r"x is torch.float32 of 2 dimensions: the model"
    ):
        twin(torch.ones(2, 5))
    with pytest.raises(hs.ArgumentTypeError, match="does not take these arguments"):
        twin(tokens(2, 5), 1)


def test_a_program_of_another_model_is_refused(model: zoo.Tied) -> None:
    """Products are made of what was captured of the same model."""
    captured = capture(zoo.Branching().eval(), (rand(2, 3, 8, 8),))
    with pytest.raises(hs.ArgumentError, match="the model has no module body"):
        product(model, captured)
