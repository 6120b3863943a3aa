"""Simulation: the right values inside, the same model outside."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs
from benchmarks.models import ResNet18
from tests.flows.models import Recurrent, Small, assert_same, by_hand, snapshot

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
INT4 = hs.QSpec(hs.int4, symmetric=True)


def test_weights_are_rounded_inside_and_whole_outside() -> None:
    """Inside, the output is that of hand-rounded weights; outside, the model is as it was."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    x, before = torch.randn(3, 4), snapshot(model)
    expected = copy.deepcopy(model)
    expected[0].weight.data = by_hand(expected[0].weight.data)
    with hs.simulate(model, {"0": INT4}) as report:
        inside = model(x)
    torch.testing.assert_close(inside, expected(x))
    assert_same(before, snapshot(model))
    assert list(report) == ["0"]
    assert report["0"]["weight"].values == 32


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["inside", "outside"])
def test_the_model_is_restored_after_an_exception(error: type[BaseException], where: str) -> None:
    """Whatever is raised, in a layer or beside it, the model is exactly as before."""
    model = Small()
    before = snapshot(model)

    def fail(*_: Any) -> None:
        raise error

    def run() -> None:
        with hs.simulate(model, {"fc1": INT4, "conv": INT4}):
            model(IMAGES) if where == "inside" else fail()

    handle = model.fc2.register_forward_pre_hook(fail)
    with pytest.raises(error):
        run()
    handle.remove()
    assert_same(before, snapshot(model))


def test_of_nested_simulations_the_inner_wins() -> None:
    """Weights, inputs and outputs follow the inner recipe inside it, the outer one after it."""
    model = nn.Sequential(nn.Linear(4, 4))
    x, before = torch.randn(8, 4), snapshot(model)

    def run(spec: Any) -> Tensor:
        with hs.simulate(model, [hs.Rule("0", weight=spec, input=spec, output=spec)]):
            out: Tensor = model(x)
        return out

    fine, coarse = run(hs.int8), run(hs.int2)
    with hs.simulate(model, [hs.Rule("0", weight=hs.int2, input=hs.int2, output=hs.int2)]):
        assert torch.equal(run(hs.int8), fine)
        assert torch.equal(model(x), coarse)
    assert_same(before, snapshot(model))


def test_tied_weights_and_shared_modules_are_simulated_once() -> None:
    """One parameter is quantized once per run, however many layers use it."""
    model, calls = Small(), []

    def count(x: Tensor) -> Tensor:
        calls.append(x)
        return x.round()

    with hs.simulate(model, {"fc?": count}):
        model(IMAGES)
    assert len(calls) == 1


def test_weights_that_the_parent_uses_are_simulated() -> None:
    """Attention's output projection is never called itself; its weight is simulated too."""
    model = Small().eval()
    with torch.no_grad():
        plain = model(IMAGES)
        with hs.simulate(model, {"attention.out_proj": hs.int2}) as report:
            simulated = model(IMAGES)
    assert report["attention.out_proj"]["weight"].values == 64
    assert not torch.equal(plain, simulated)


def test_recurrent_weights_are_simulated() -> None:
    """Every weight matrix of an LSTM, both directions and layers, and none of its biases."""
    model = Recurrent()
    tokens = torch.randint(0, 20, (2, 5))
    plain, before = model(tokens)[0], snapshot(model)
    with hs.simulate(model, {nn.LSTM: hs.QSpec(hs.int4, hs.PerChannel(0))}) as report:
        simulated, _ = model(tokens)
        simulated.sum().backward()
    assert len(report["lstm"]) == 8
    assert all(name.startswith("weight_") for name in report["lstm"])
    assert not torch.equal(plain, simulated)
    assert model.lstm.weight_hh_l1_reverse.grad is not None
    assert torch.equal(model(tokens)[0], plain)
    model.zero_grad(set_to_none=True)
    assert_same(before, snapshot(model))


def test_gradients_flow_so_that_it_trains() -> None:
    """Training inside the ``with`` lowers the loss of the quantized model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    x = torch.randn(64, 8)
    target = x.sum(1, keepdim=True)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    with hs.simulate(model, {nn.Linear: hs.QSpec(hs.int4, hs.PerChannel(0))}):
        for _ in range(60):
            loss = (model(x) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_inputs_and_outputs_by_hand() -> None:
    """The activations inside are those of fake_quantize."""
    model, x = nn.Sequential(nn.Tanh()), torch.randn(4, 4)
    spec = hs.QSpec(hs.uint4)
    with hs.simulate(model, [hs.Rule("0", input=spec, output=spec)]) as report:
        inside = model(x)
    expected = hs.fake_quantize(torch.tanh(hs.fake_quantize(x, spec)), spec)
    assert torch.equal(inside, expected)
    assert set(report["0"]) == {"input", "output"}
    assert report["0"]["input"].sqnr == pytest.approx(
        10 * torch.log10(x.square().sum() / (x - hs.fake_quantize(x, spec)).square().sum()).item(),
        abs=1e-3,
    )


def test_saturation_is_counted() -> None:
    """A range set by hand that cuts a quarter of the values shows as a quarter."""
    observer = hs.MinMaxObserver(hs.QSpec(hs.uint8))
    observer.set_range(0.0, 7.0)
    model = nn.Sequential(nn.Identity())
    with hs.simulate(model, {"0": observer}) as report:
        model(torch.tensor([1.0, 2.0, 3.0, 9.0]))
    assert report["0"]["output"].saturated == 0.25
    assert "25.00%" in str(report)


def test_observed_ranges_are_used() -> None:
    """What ``calibrate`` returns is a recipe: the outputs get the observed ranges, frozen."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    data = torch.randn(64, 4)
    observers = hs.calibrate(model, data, {"1": hs.MinMaxObserver(hs.QSpec(hs.uint8))})
    with hs.simulate(model, observers):
        inside = model(10 * data)
    scale, zero_point = observers["1"].qparams()
    expected = hs.fake_quantize(model(10 * data), hs.uint8, scale=scale, zero_point=zero_point)
    assert torch.equal(inside, expected)


def test_a_rule_without_weights_to_match() -> None:
    """A container has no weights of its own, and says where they are."""
    model = ResNet18()
    with (
        pytest.raises(hs.ArgumentError, match="without a weight of two or more dimensions"),
        hs.simulate(model, {"layer1": hs.int8}),
    ):
        pass


def test_a_granularity_that_does_not_fit_names_the_layer() -> None:
    """An axis that a weight lacks is refused with the layer's name, and the model is unharmed."""
    model = Small()
    before = snapshot(model)
    with (
        pytest.raises(hs.ArgumentError, match="the weight of fc1: axis=3"),
        hs.simulate(model, {"fc1": hs.QSpec(hs.int8, hs.PerChannel(3))}),
    ):
        model(IMAGES)
    assert_same(before, snapshot(model))


def test_a_quantizer_that_changes_the_shape_is_refused() -> None:
    """A function of one's own must keep the shape."""
    model = Small()
    with (
        pytest.raises(hs.HalfstepError, match="a tensor of the same shape"),
        hs.simulate(model, {"fc1": lambda x: x[:1]}),
    ):
        model(IMAGES)


def test_a_submodule_called_directly_is_simulated() -> None:
    """Not only the whole model: any call on the way to a layer."""
    model = Small()
    with torch.no_grad(), hs.simulate(model, {"conv": hs.int2}):
        part = model.conv(IMAGES)
        method = model.encode(IMAGES)
    assert not torch.equal(part, model.conv(IMAGES))
    assert torch.equal(method, part.relu())


def test_resnet_first_convolution() -> None:
    """The example that people ask for, on the real topology."""
    model, x = ResNet18().eval(), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        plain = model(x)
        with hs.simulate(model, {"conv1": hs.QSpec(hs.int8, hs.PerChannel(0))}) as report:
            inside = model(x)
        assert torch.equal(model(x), plain)
    assert report["conv1"]["weight"].sqnr > 40
    assert not torch.equal(inside, plain)


def test_report_prints_the_noisiest_first() -> None:
    """A table of layers, slots, dB and saturation; what did not run says so."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    with hs.simulate(model, {"0": hs.int8, "1": hs.int2}) as report:
        assert "not run" in str(report)
        model(torch.randn(2, 8))
    lines = str(report).splitlines()
    assert lines[0].split() == ["layer", "slot", "SQNR", "dB", "saturated"]
    assert [line.split()[0] for line in lines[1:]] == ["1", "0"]
