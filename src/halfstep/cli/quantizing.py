"""``halfstep quantize``: find the model, the data and the recipe; quantize, write, report."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from halfstep.cli.console import output_console, print_plain
from halfstep.cli.outputs import UsageError, check_outputs
from halfstep.cli.progress import reading
from halfstep.cli.words import size
from halfstep.errors import ArgumentError, HalfstepError, MissingFileError
from halfstep.flows import ptq
from halfstep.flows.coverage import FLOAT
from halfstep.flows.named_data import named_data
from halfstep.flows.named_model import WEIGHTS, called, importable_here, named_model
from halfstep.flows.result import Result
from halfstep.flows.ship import export_onnx, save
from halfstep.formats.quantize_file import quantize_file
from halfstep.spec import PerChannel, PerGroup, QDType, QSpec, Rule
from halfstep.spec.recipe import Recipe
from halfstep.spec.recipes import dynamic_int8, static_int8, weight_only

STATIC, DYNAMIC, WEIGHT_ONLY = RECIPES = ("static_int8", "dynamic_int8", "weight_only")
_JSON: Final = ".json"


@dataclass(frozen=True, kw_only=True)
class Order:
    """The arguments of ``halfstep quantize``."""

    model: str
    output: Path
    data: str | None = None
    recipe: str | None = None
    weights: Path | None = None
    weight_only: str | None = None
    group_size: int | None = None
    keep_float: tuple[str, ...] = ()
    onnx: Path | None = None
    batch_size: int | None = None
    max_batches: int | None = None
    engine: str = "torch"
    min_sqnr: float | None = None
    table: bool = False


def quantize_model(order: Order) -> None:
    """Do what was ordered, and print what came of it."""
    _check(order)
    importable_here()
    recipe = _recipe(order)
    if order.keep_float:
        recipe = recipe or (dynamic_int8() if order.data is None else static_int8())
        recipe = recipe.with_rules(*(Rule(glob, keep_float=True) for glob in order.keep_float))
    if order.model.endswith(WEIGHTS):
        _quantize_weights(order)
        return
    model = named_model(order.model, order.weights)
    batches = None if order.data is None else named_data(order.data, model, order.batch_size)
    quantize = partial(ptq.quantize, max_batches=order.max_batches if batches else None)
    options = {"engine": order.engine, "min_sqnr": order.min_sqnr, "inplace": True}
    result = called(
        f"quantizing {order.model}", partial(quantize, model, batches, recipe, **options)
    )
    save(result, order.output)
    if order.onnx is not None:
        export_onnx(result, order.onnx)
    _report(order, result)


def _check(order: Order) -> None:
    """What can be known to be wrong before anything is loaded is a usage error."""
    if order.weight_only is not None and order.recipe not in (None, WEIGHT_ONLY):
        raise UsageError("--weight-only is a recipe of its own: leave out --recipe")
    if order.group_size is not None and WEIGHT_ONLY not in (
        order.recipe,
        order.weight_only and WEIGHT_ONLY,
    ):
        raise UsageError("--group-size goes with --weight-only int4 or int8")
    if order.recipe == STATIC and order.data is None:
        raise UsageError("static_int8 finds its ranges on data: give --data")
    if order.min_sqnr is not None and order.data is None:
        raise UsageError("--min-sqnr is measured on data: give --data")
    if order.model.endswith(WEIGHTS):
        _check_weights(order)
    inputs = [order.model, order.data, order.recipe, order.weights]
    check_outputs([order.output, order.onnx], inputs)


def _check_weights(order: Order) -> None:
    if order.weight_only is None and order.recipe != WEIGHT_ONLY:
        raise UsageError(
            f"{order.model} holds weights and no model: give --weight-only int4 or int8 to "
            "quantize them, or package.module:factory with --weights"
        )
    extra = {"--data": order.data, "--onnx": order.onnx, "--weights": order.weights}
    given = [name for name, value in extra.items() if value is not None]
    if given:
        raise UsageError(f"{order.model} is no model, so {', '.join(given)} has no use")


def _recipe(order: Order) -> Recipe | None:
    if order.weight_only is not None or order.recipe == WEIGHT_ONLY:
        return weight_only(_dtype(order), order.group_size)
    named = {STATIC: static_int8, DYNAMIC: dynamic_int8}
    if order.recipe is None or order.recipe in named:
        return named[order.recipe]() if order.recipe else None
    if not order.recipe.endswith(_JSON):
        raise UsageError(
            f"--recipe {order.recipe}: allowed are {', '.join(RECIPES)}, and a {_JSON} file"
        )
    return _recipe_in(Path(order.recipe))


def _dtype(order: Order) -> QDType:
    return QDType.parse(order.weight_only or "int8")


def _recipe_in(path: Path) -> Recipe:
    try:
        return Recipe.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingFileError(f"{path}: there is no such file") from None
    except (HalfstepError, OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path}: {error}") from error


def _quantize_weights(order: Order) -> None:
    """The weights of a file, without any model."""
    dtype = _dtype(order)
    by = PerChannel(0) if order.group_size is None else PerGroup(1, order.group_size)
    with reading(Path(order.model).stat().st_size) as advance:
        spec = QSpec(dtype, by, symmetric=True)
        report = quantize_file(
            order.model, order.output, spec, exclude=order.keep_float, progress=advance
        )
    console = output_console()
    lines = str(report).splitlines()
    for line in lines if order.table or not report.quantized else lines[-1:]:  # why none was
        print_plain(line, console)
    print_plain(f"written: {order.output} ({size(order.output.stat().st_size)})", console)


def _report(order: Order, result: Result) -> None:
    console = output_console()
    totals = result.coverage.totals
    shown = str(result.coverage).splitlines() if order.table else [*_left(result), totals]
    for line in (*shown, *str(result.summary).splitlines()):
        print_plain(line, console)
    for path in (order.output, order.onnx):
        if path is not None:
            print_plain(f"written: {path} ({size(path.stat().st_size)})", console)


def _left(result: Result) -> Iterator[str]:
    """The operators whose weights stay floats."""
    for row in result.coverage:
        if row.runs == FLOAT and row.before:
            yield f"float: {row.layer or row.op} ({size(row.before)}): {row.why}"
