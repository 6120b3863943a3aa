"""What a user asked for when quantizing a model."""

from dataclasses import dataclass

from torch import nn
from torch.jit import ScriptModule

from halfstep.engines import by_name
from halfstep.errors import ArgumentError, ArgumentTypeError
from halfstep.flows.layers import Recipe, as_recipe
from halfstep.graph.capture import programs_of
from halfstep.graph.engine import Engine
from halfstep.spec import PerTensor, QDType, QSpec, Rule
from halfstep.spec.recipe import Recipe as NamedRecipe
from halfstep.spec.recipes import dynamic_int8, static_int8


@dataclass(frozen=True, kw_only=True)
class Order:
    """A recipe, who chose it, and what is to run the model.

    inplace: whether the model that was given is to be changed itself.
    """

    recipe: NamedRecipe
    engine: Engine
    why: str = ""
    inplace: bool = False


def order(
    model: nn.Module,
    recipe: Recipe | None,
    *,
    has_data: bool,
    engine: str | Engine = "torch",
    inplace: bool = False,
) -> Order:
    """The order, checked.

    Raises ``ArgumentTypeError`` for what is no model, and ``ArgumentError`` for a compiled,
    scripted or quantized one, for an engine that there is not, and for a recipe that needs data
    and has none.
    """
    _check_model(model)
    chosen = (static_int8() if has_data else dynamic_int8()) if recipe is None else None
    rules = chosen or as_recipe(recipe or ())
    if not has_data and any(map(_needs_data, rules)):
        raise ArgumentError(
            f"the recipe {rules.name} has one scale for a whole input or output, which is found "
            "on data: give batches, or use dynamic_int8() or weight_only()"
        )
    hungry = [repr(remedy) for remedy in rules.remedies if remedy.needs_data]
    if not has_data and hungry:
        raise ArgumentError(
            f"{', '.join(hungry)} of the recipe {rules.name} looks at data: give batches, or leave "
            "it out"
        )
    why = f"chosen since {'batches' if has_data else 'no batches'} were given" if chosen else ""
    return Order(
        recipe=rules,
        engine=by_name(engine) if isinstance(engine, str) else engine,
        why=why,
        inplace=inplace,
    )


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"model is a {type(model).__name__}: give a torch.nn.Module")
    if hasattr(model, "_orig_mod"):
        raise ArgumentError(
            "the model is compiled, and compiled code sees no changes of its layers: give the "
            "model that was compiled"
        )
    scripted = [name for name, one in model.named_modules() if isinstance(one, ScriptModule)]
    if scripted:
        raise ArgumentError(
            f"{scripted[0] or 'the model'} is a TorchScript program, whose layers cannot be "
            "changed: give the nn.Module that it was made from"
        )
    if any("forward" in vars(module) and is_ours(module) for module in model.modules()):
        raise ArgumentError(
            "the model is quantized or prepared already: give the float model, or use "
            "result.recalibrate(batches)"
        )


def is_ours(module: nn.Module) -> bool:
    """Whether a module runs a program of ours that is no longer the float one."""
    is_float = bool(programs_of(module))
    return type(vars(module)["forward"]).__module__.startswith("halfstep.") and not is_float


def _needs_data(rule: Rule) -> bool:
    """Whether a range has to be found beforehand."""
    given = [value for value in (rule.input, rule.output) if value is not None]
    specs = [QSpec(v) if isinstance(v, QDType) else getattr(v, "spec", v) for v in given]
    return any(not isinstance(one, QSpec) or one.granularity == PerTensor() for one in specs)
