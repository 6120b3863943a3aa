"""Recipe: a sequence of rules, its Python and its JSON; the presets."""

import copy
import json
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import halfstep as hs
import halfstep.graph.recurrent
from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.spec.recipe import Recipe
from halfstep.spec.recipes import dynamic_int8, static_int8, weight_only

PRESETS = {
    "static_int8": static_int8,
    "dynamic_int8": dynamic_int8,
    "weight_only": weight_only,
    "int4 groups": lambda: weight_only(hs.int4, group_size=32),
}
ROWS = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)
OWN = Recipe(
    "own",
    [
        hs.Rule("layer1.*", weight=ROWS, input=hs.uint8, observer=hs.HistogramObserver),
        hs.Rule(nn.Conv2d, weight=hs.QSpec(hs.int4, hs.PerGroup(1, 32), symmetric=True)),
        hs.Rule(torch.ops.aten.conv_transpose2d, output=hs.QSpec(hs.uint8)),
        hs.Rule("fc", weight=ROWS, weight_observer=hs.HistogramObserver),
        hs.Rule(torch.ops.aten.add.Tensor, keep_float=True),
        hs.Rule(F.relu, output=hs.QSpec(hs.uint8)),
    ],
    defaults=[hs.Rule("*", keep_float=True)],
    remedies=[hs.remedies.Equalize(), hs.remedies.Smooth(0.7), hs.remedies.CorrectBias()],
)


@pytest.mark.parametrize("recipe", [*(make() for make in PRESETS.values()), OWN])
def test_a_recipe_survives_json_and_its_own_print(recipe: Recipe) -> None:
    """What is written is read back equal, and repr and str are Python that evaluates to it."""
    again = Recipe.from_json(recipe.to_json())
    assert again.to_dict() == recipe.to_dict() == json.loads(recipe.to_json())
    assert [rule.match for rule in again] == [rule.match for rule in recipe]
    names = {**vars(hs), "torch": torch, "Recipe": Recipe}
    assert eval(repr(recipe), names) == recipe  # noqa: S307  (our own text)
    assert eval(str(recipe), names) == recipe  # noqa: S307


def test_a_recipe_is_a_sequence_of_its_rules() -> None:
    """Own rules first, then the defaults; by place, in a loop, counted."""
    assert len(OWN) == 7
    assert OWN[0].match == "layer1.*"
    assert OWN[-1] is OWN.defaults[0]
    assert [rule.match for rule in OWN][-2:] == [torch.ops.aten.relu, "*"]


@pytest.mark.parametrize("recipe", [*(make() for make in PRESETS.values()), OWN])
def test_a_recipe_is_pickled_and_copied(recipe: Recipe) -> None:
    """With its operators, which torch itself does not pickle."""
    assert pickle.loads(pickle.dumps(recipe)) == copy.deepcopy(recipe) == recipe


def test_added_rules_come_first() -> None:
    """``with_rules`` and ``+`` put them in front, and the recipe itself stays as it was."""
    recipe, rule = static_int8(), hs.Rule("fc", keep_float=True)
    assert recipe.with_rules(rule)[0] is (recipe + rule)[0] is rule
    more = [rule]
    assert (recipe + more)[0] is rule
    assert recipe.with_rules(rule).rules == (rule,)
    assert recipe.rules == ()
    both = recipe + Recipe("mine", [rule], defaults=[rule])
    assert both[0] is rule
    assert both.defaults[0] is rule


@pytest.mark.parametrize(
    ("match", "written"),
    [
        ("layer1.*", "layer1.*"),
        (nn.Linear, {"type": "torch.nn.modules.linear.Linear"}),
        (torch.ops.aten.conv_transpose2d, {"op": "aten.conv_transpose2d"}),
        (torch.ops.aten.add.Tensor, {"op": "aten.add.Tensor"}),
        (torch.add, {"op": "aten.add"}),
        (torch.Tensor.add_, {"op": "aten.add"}),
        (F.gelu, {"op": "aten.gelu"}),
        (torch.ops.halfstep.quantize, {"op": "halfstep.quantize"}),
    ],
)
def test_how_a_match_is_written(match: object, written: object) -> None:
    """A name is text; types and operators say which they are."""
    assert Recipe("r", [hs.Rule(match, weight=hs.int8)]).to_dict()["rules"][0]["match"] == written


@pytest.mark.parametrize(
    "rule",
    [
        hs.Rule(nn.Linear(2, 2), keep_float=True),
        hs.Rule(lambda name: True, keep_float=True),
        hs.Rule(type("Local", (nn.Module,), {"__qualname__": "f.<locals>.Local"}), keep_float=True),
        hs.Rule("fc", weight=lambda w: w.sign()),
        hs.Rule("fc", output=hs.MinMaxObserver(hs.int8)),
        hs.Rule("fc", output=hs.int8, observer=lambda spec: hs.FixedObserver(spec, 0, 1)),
    ],
)
def test_what_lives_in_this_process_cannot_be_written(rule: hs.Rule) -> None:
    """A module, a function, a local class, an observer object: the error says so and the way."""
    with pytest.raises(ArgumentTypeError, match="cannot be written to JSON"):
        Recipe("mine", [rule]).to_json()


def rule_json(**fields: object) -> str:
    """A recipe of one rule."""
    return json.dumps({"name": "r", "rules": [{"match": "fc", "keep_float": True, **fields}]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the recipe is no JSON"),
        ("[]", "is no recipe"),
        ('{"rules": 3}', "is no recipe"),
        ('{"rule": []}', "a recipe with 'rule': allowed are name, rules, defaults and remedies"),
        ('{"rules": [{"weight": {}}]}', "is no rule: allowed are"),
        ('{"rules": [{"match": "x", "wait": 1}]}', "is no rule: allowed are"),
        (rule_json(keep_float=1), "keep_float=1 is not a bool"),
        (rule_json(match={"type": "torch.nn.NoSuch"}), "which is not loaded: import its module"),
        (rule_json(match={"type": "no_such_package.Thing"}), "which is not loaded"),
        (rule_json(match={"type": "torch.nn.functional.relu"}), "which is not loaded"),
        (rule_json(match={"op": "aten.no_such_op"}), "which torch .* does not have"),
        (rule_json(match={"op": "aten.__class__"}), "which torch .* does not have"),
        (rule_json(match={"kind": "x"}), "is no match"),
        (rule_json(match=3), "is no match"),
        (rule_json(output={"dtype": "int8"}, keep_float=False, observer="os.system"), "not loaded"),
        (
            rule_json(output={"dtype": "int8"}, keep_float=False, observer="json.JSONDecoder"),
            "is no observer",
        ),
        (rule_json(output={"dtype": "int8"}, keep_float=False, observer=3), "is no observer"),
    ],
)
def test_what_is_no_recipe_is_refused(text: str, message: str) -> None:
    """Nothing is imported or called, and the error says what is wrong."""
    with pytest.raises(ArgumentError, match=message):
        Recipe.from_json(text)


def test_reading_imports_nothing() -> None:
    """A class of a package that is not loaded is an error, and the package stays unloaded."""
    import sys  # noqa: PLC0415  (only here)

    assert "wsgiref.util" not in sys.modules
    with pytest.raises(ArgumentError, match="a recipe imports nothing by itself"):
        Recipe.from_json(rule_json(match={"type": "wsgiref.util.FileWrapper"}))
    assert "wsgiref.util" not in sys.modules


def test_what_is_no_rule_is_refused() -> None:
    """Neither in the constructor, nor as an addition; and a name is text."""
    for make in (lambda: Recipe("r", ["fc"]), lambda: static_int8().with_rules(3)):
        with pytest.raises(ArgumentTypeError, match="which is no rule"):
            make()
    with pytest.raises(ArgumentTypeError, match="is no text"):
        Recipe(3)


def test_functions_of_torch_are_their_operators() -> None:
    """``torch.add`` in a rule is the operator; a function that is none is an error."""
    assert hs.Rule(torch.add, keep_float=True).match is torch.ops.aten.add
    with pytest.raises(ArgumentError, match="interpolate of torch is no single operator"):
        hs.Rule(F.interpolate, keep_float=True)


def test_one_scale_per_output_channel_also_of_transposed_convolutions() -> None:
    """Their output channels are axis 1; those of everything else axis 0."""
    for make in PRESETS.values():
        axes = {str(rule.match): rule.weight.axis for rule in make()}
        assert axes["aten.conv_transpose2d"] == 1
        assert {axes.get("aten.conv2d", 0), axes["halfstep.lstm"]} == {0}


def test_weights_in_formats_that_no_kernel_has() -> None:
    """Unsigned or wide formats, and groups of one, are refused."""
    for wrong in (hs.uint8, hs.int16, hs.int32):
        with pytest.raises(ArgumentError, match="is for no weights"):
            weight_only(wrong)
    with pytest.raises(ArgumentError, match="group_size=1"):
        weight_only(hs.int4, group_size=1)
