"""save_model and load_model: the same bits, names and objects, and no code of the model's class."""

import copy
import dataclasses
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError, FileFormatError
from halfstep.formats import load_model, load_tensors, open_model, save_model
from halfstep.formats.rebuilt import LoadedModule
from halfstep.graph.capture import capture
from halfstep.graph.product import install, product
from halfstep.spec import PerChannel, QSpec, Rule, int8
from halfstep.spec.recipe import Recipe
from halfstep.tensor import QTensor, quantize
from tests.formats.stored_models import Net, Odd, ReferenceEngine, by_hand
from tests.graph.test_zoo import assert_same_on_all, cloned
from tests.graph.zoo_cases import PARTS, WHOLE, made

ENGINE = ReferenceEngine()
SOME = ["block", "tied", "outputs", "several_inputs", "shuffle", "embedding_bag", "lstm_unbatched"]


def images(count: int = 3) -> Tensor:
    """(N, 1, 8, 8)."""
    return torch.randn(count, 1, 8, 8)


@pytest.fixture(scope="module")
def net() -> nn.Module:
    """A calibrated model."""
    torch.manual_seed(0)
    return by_hand(Net(), images())


@pytest.mark.parametrize("name", SOME)
def test_models_come_back(name: str, tmp_path: Path) -> None:
    """Of any outputs, arguments and shared tensors, with the class and without."""
    case = WHOLE[name]
    model = made(case)
    args, kwargs = case.arguments()[0]
    save_model(tmp_path / "m.halfstep", product(model, capture(model, args, kwargs)))
    loaded = load_model(tmp_path / "m.halfstep")
    assert_same_on_all(model, loaded, case)
    assert_same_on_all(model, load_model(tmp_path / "m.halfstep", model), case)
    assert list(loaded.state_dict()) == list(model.state_dict())
    assert [n for n, _ in loaded.named_parameters()] == [n for n, _ in model.named_parameters()]


@pytest.mark.parametrize("name", PARTS)
def test_models_in_parts_need_their_class(name: str, tmp_path: Path) -> None:
    """The code between the parts is not in the file: the error says so, and model= serves."""
    case, _ = PARTS[name]
    model = made(case)
    args, kwargs = case.arguments()[0]
    path = tmp_path / "m.halfstep"
    save_model(path, product(model, capture(model, args, kwargs)))
    with pytest.raises(
        ArgumentError, match=r"only parts of this .* give the float model as model="
    ):
        load_model(path)
    assert_same_on_all(model, load_model(path, model), case)


@pytest.mark.parametrize("with_class", [False, True])
def test_integers_come_back(net: nn.Module, tmp_path: Path, *, with_class: bool) -> None:
    """Weights, edges and outputs of a calibrated model, on other batches than the example's."""
    path, float_model = tmp_path / "net.halfstep", Net()
    before = copy.deepcopy(float_model.state_dict())
    save_model(path, net)
    loaded = load_model(path, float_model if with_class else None, engine=ENGINE)
    assert type(loaded) is (Net if with_class else LoadedModule)
    for count in (1, 5):
        x = images(count)
        assert torch.equal(loaded(x)["logits"], net(x)["logits"])
    weight = loaded.get_parameter("conv1.weight")
    assert isinstance(weight, QTensor)
    assert torch.equal(weight.int_repr(), net.get_parameter("conv1.weight").int_repr())
    assert all(torch.equal(v, before[k]) for k, v in float_model.state_dict().items())
    assert not isinstance(float_model.conv1.weight, QTensor)


def test_a_loaded_model_is_a_module_like_any_other(net: nn.Module, tmp_path: Path) -> None:
    """Names, buffers, signature, copies and pickles; it can be saved again."""
    save_model(tmp_path / "a.halfstep", net)
    loaded, x = load_model(tmp_path / "a.halfstep", engine=ENGINE), images()
    expected = net(x)["logits"]
    assert str(loaded).startswith("Net(\n  (conv1): Conv2d()")
    assert list(loaded.state_dict()) == list(net.state_dict())
    assert [name for name, _ in loaded.named_buffers()] == ["offset"]
    names = {"image": inspect.Parameter.empty, "scale": 2.0}
    parameters = inspect.signature(loaded.forward).parameters
    assert {name: each.default for name, each in parameters.items()} == names
    assert torch.equal(loaded(image=x, scale=2.0)["logits"], expected)
    with pytest.raises(ArgumentError, match=r"scale is 3.0"):
        loaded(x, scale=3.0)
    with pytest.raises(ArgumentTypeError, match="does not take these arguments"):
        loaded(picture=x)
    for twin in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert torch.equal(twin(x)["logits"], expected)
    save_model(tmp_path / "b.halfstep", loaded)
    assert (tmp_path / "a.halfstep").read_bytes() == (tmp_path / "b.halfstep").read_bytes()


def test_a_part_of_a_loaded_model_says_why_it_cannot_run(net: nn.Module, tmp_path: Path) -> None:
    """Its code is that of a class which is not in the file."""
    save_model(tmp_path / "a.halfstep", net)
    loaded = load_model(tmp_path / "a.halfstep", engine=ENGINE)
    with pytest.raises(ArgumentError, match="this Conv2d runs as a part of the whole model only"):
        loaded.get_submodule("conv1")(images())


def test_shared_things_stay_shared(tmp_path: Path) -> None:
    """A tied parameter is one object and one entry, a shared module one module."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model.append(model[0])
    twin = product(model.eval(), capture(model.eval(), (torch.ones(2, 3),)))
    twin[3].weight.requires_grad_(requires_grad=False)
    save_model(tmp_path / "m.halfstep", twin)
    loaded = load_model(tmp_path / "m.halfstep")
    first, second, _, last, again = loaded._modules.values()
    assert first is again
    assert first.weight is second.weight
    assert [first.weight.requires_grad, last.weight.requires_grad] == [True, False]
    assert "1.weight" not in load_tensors(tmp_path / "m.halfstep")
    assert set(loaded.state_dict()) == set(model.state_dict())


class Holder(nn.Module):
    """Reads a tensor that is neither a parameter nor a buffer, and one with an odd name."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.arange(3.0)
        self.register_parameter("odd:scale", nn.Parameter(torch.ones(3)))
        self.register_parameter("none", None)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3)."""
        return x * getattr(self, "odd:scale") + self.offset + torch.tensor([1.0, 2.0, 4.0])


def test_equal_tensors_are_stored_once_and_come_back_apart(tmp_path: Path) -> None:
    """As those of folded batch norms; a tensor that is changed later changes alone."""
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.BatchNorm1d(16)).eval()
    save_model(tmp_path / "m.halfstep", product(model, capture(model, (torch.randn(4, 16),))))
    stored = {name for name in load_tensors(tmp_path / "m.halfstep") if name[0] in "12"}
    assert len(stored) == 2 + 2  # ones and zeros, and two counts
    loaded = load_model(tmp_path / "m.halfstep")
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in loaded.state_dict().items())
    with torch.no_grad():
        loaded.get_parameter("1.weight").zero_()
    assert torch.equal(loaded.get_parameter("2.weight"), torch.ones(16))


@pytest.mark.parametrize("with_class", [False, True])
def test_every_tensor_that_a_program_reads_is_there(tmp_path: Path, *, with_class: bool) -> None:
    """Attributes and constants too, quantized ones as such."""
    model, x = Holder().eval(), torch.ones(2, 3)
    twin = product(model, capture(model, (x,)))
    (program,) = vars(twin)["forward"].programs
    name, constant = next(iter(program.constants.items()))
    changed = {name: quantize(constant, int8, scale=1.0, zero_point=0)}
    install(twin, {"": [dataclasses.replace(program, constants=changed)]})
    save_model(tmp_path / "m.halfstep", twin)
    loaded = load_model(tmp_path / "m.halfstep", Holder() if with_class else None)
    assert torch.equal(loaded(x), model(x))
    assert torch.equal(loaded.offset, model.offset)
    assert loaded.get_parameter("odd:scale").requires_grad
    assert loaded.none is None
    assert isinstance(vars(loaded)["forward"].programs[0].constants[name], QTensor)


def test_a_module_keeps_its_own_lists_of_parameters(tmp_path: Path) -> None:
    """The float code of a recurrent layer reads what was loaded."""
    model, x = nn.GRU(3, 4).eval(), torch.ones(5, 3)
    save_model(tmp_path / "m.halfstep", product(model, capture(model, (x,))))
    loaded = load_model(tmp_path / "m.halfstep", nn.GRU(3, 4))
    assert all(a is b for a, b in zip(loaded._flat_weights, loaded.parameters(), strict=True))
    assert torch.equal(nn.GRU.forward(loaded, x)[0], model(x)[0])


def test_the_file_says_what_it_is(net: nn.Module, tmp_path: Path) -> None:
    """Recipe, calibration, engine, versions and texts of one's own."""
    recipe = Recipe("mine", [Rule("fc", weight=QSpec(int8, PerChannel(0)))])
    path = tmp_path / "m.halfstep"
    save_model(path, net, recipe=recipe, calibrated=16, extra={"author": "me"})
    read = open_model(path)
    assert read.recipe == recipe
    assert (read.calibrated, read.engine, read.cls) == (16, "reference", "Net")
    assert read.extra == {"author": "me"}
    assert read.about()[0] == (
        "Net, quantized by mine, calibrated on 16 batches, for the engine reference"
    )
    assert set(load_tensors(path)) == {*net.state_dict(), "offset"}


def test_a_recipe_of_objects_is_kept_as_text(net: nn.Module, tmp_path: Path) -> None:
    """A rule for a module object lives in its process only."""
    recipe = Recipe("mine", [Rule(net.get_submodule("fc"), weight=int8)])
    save_model(tmp_path / "m.halfstep", net, recipe=recipe)
    read = open_model(tmp_path / "m.halfstep")
    assert read.recipe is None
    assert read.recipe_text == str(recipe)


def test_what_cannot_be_saved_is_refused(net: nn.Module, tmp_path: Path) -> None:
    """The error says what to do, and no file appears."""
    path = tmp_path / "m.halfstep"
    with pytest.raises(ArgumentError, match="this Linear runs no program, so it is not quantized"):
        save_model(path, nn.Linear(2, 2))
    with pytest.raises(ArgumentTypeError, match=r"model is a dict: give the quantized nn\.Module"):
        save_model(path, {})  # type: ignore[arg-type]  # what is tested
    with pytest.raises(ArgumentTypeError, match=r"extra is .* give a dict of texts"):
        save_model(path, net, extra={"count": 3})  # type: ignore[dict-item]  # what is tested
    assert not list(tmp_path.iterdir())


class Wider(Net):
    """The same names, other sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 5)


def test_another_model_is_refused(net: nn.Module, tmp_path: Path) -> None:
    """Where its modules, tensors or shapes are not the file's."""
    path = tmp_path / "m.halfstep"
    save_model(path, net)
    with pytest.raises(ArgumentError, match=r"other modules .* lacks conv1, conv2, fc"):
        load_model(path, nn.Linear(2, 2), engine=ENGINE)
    with pytest.raises(ArgumentError, match=r"fc has weight of shape \(5, 64\), .* \(3, 64\)"):
        load_model(path, Wider(), engine=ENGINE)
    with pytest.raises(ArgumentTypeError, match="model is a type"):
        load_model(path, Net, engine=ENGINE)  # type: ignore[arg-type]  # what is tested
    bare = Net()
    bare.conv1 = nn.Conv2d(1, 4, 3, padding=1)
    bare.conv1.register_buffer("more", torch.ones(1))
    with pytest.raises(ArgumentError, match=r"conv1 has other tensors .* has more besides"):
        load_model(path, bare, engine=ENGINE)


def test_a_calibrated_model_needs_an_engine(net: nn.Module, tmp_path: Path) -> None:
    """The file names one, and the caller brings it."""
    save_model(tmp_path / "m.halfstep", net)
    with pytest.raises(ArgumentError, match="needs an engine"):
        load_model(tmp_path / "m.halfstep")(images())


def test_methods_of_the_class_are_kept(tmp_path: Path) -> None:
    """A model of the user's class has its other methods."""
    odd = by_hand(Odd(), torch.randn(2, 4))
    save_model(tmp_path / "m.halfstep", odd)
    loaded, x = load_model(tmp_path / "m.halfstep", Odd(), engine=ENGINE), torch.randn(3, 4)
    assert torch.equal(loaded.encode(x), odd.encode(x))
    assert torch.equal(loaded(*cloned((x,))), odd(x))


def test_the_same_model_gives_the_same_bytes(net: nn.Module, tmp_path: Path) -> None:
    """A file can be compared and cached by its content."""
    for name in ("a", "b"):
        save_model(tmp_path / name, net)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_files_are_no_models(tmp_path: Path) -> None:
    """The error says how they are read."""
    torch.save({"w": torch.ones(1)}, tmp_path / "w.pt")
    with pytest.raises(FileFormatError, match=r"w\.pt: it is a file of tensors \(torch\.save\)"):
        load_model(tmp_path / "w.pt")
    with pytest.raises(FileNotFoundError, match=r"no\.halfstep"):
        load_model(tmp_path / "no.halfstep")


def test_the_description_is_json(net: nn.Module, tmp_path: Path) -> None:
    """Any reader of safetensors finds it in the metadata."""
    save_model(tmp_path / "m.halfstep", net)
    data = (tmp_path / "m.halfstep").read_bytes()
    header: Any = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about = json.loads(header["__metadata__"]["halfstep-model"])
    assert about["format"] == 1
    assert [record["path"] for record in about["modules"]] == ["", "conv1", "conv2", "fc"]
