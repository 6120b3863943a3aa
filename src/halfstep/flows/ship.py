"""Put a quantized model into a file, and get it back."""

import json
import os

from torch import nn

from halfstep.engines import by_name
from halfstep.errors import ArgumentError
from halfstep.flows.deploy import model_in
from halfstep.flows.result import Result
from halfstep.formats import load_model, save_model
from halfstep.formats.atomic import replacing
from halfstep.formats.places import as_path
from halfstep.graph.engine import Engine
from halfstep.graph.product import Forward
from halfstep.graph.quantized import Quantized


def save(quantized: Result | nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a quantized model into one ``.halfstep`` file that describes itself.

    The file holds the integers, the programs, the recipe, and of a result its coverage and summary.
    It appears whole or not at all.

    Raises ``ArgumentError`` for a model that is not quantized, ``OSError`` when the disk refuses.

    >>> import tempfile, torch
    >>> from halfstep.flows import ptq
    >>> from halfstep.flows.ship import load, save
    >>> result, x = ptq.quantize(torch.nn.Linear(64, 8)), torch.randn(2, 64)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(result, f"{folder}/linear.halfstep")
    ...     torch.equal(load(f"{folder}/linear.halfstep")(x), result.model(x))
    True
    """
    model = model_in(quantized)
    if not isinstance(quantized, Result):
        save_model(path, model)
        return
    save_model(
        path,
        model,
        recipe=quantized.recipe,
        calibrated=quantized.summary.batches,
        extra={
            "summary": json.dumps(quantized.summary.to_dict()),
            "coverage": json.dumps(quantized.coverage.to_dict()),
        },
    )


def load(
    path: str | os.PathLike[str], *, model: nn.Module | None = None, engine: str | Engine = "torch"
) -> nn.Module:
    """The model of a ``.halfstep`` file, as an ``nn.Module`` that runs; no code in it is executed.

    model: the float model: the result is then of its class, with its methods. Without it the model
        has the names, the parameters and the arguments of the original, and no code of its class.
    engine: what runs it.

    Raises ``FileFormatError`` for a file that is truncated, corrupt or no model,
    ``MissingFileError`` where there is none, and ``ArgumentError`` for a model of another kind.

    >>> try:
    ...     load("no-such-file.halfstep")
    ... except FileNotFoundError as error:
    ...     print(str(error).split(": give")[0])
    no-such-file.halfstep: there is no such file
    """
    chosen = by_name(engine) if isinstance(engine, str) else engine
    return load_model(path, model, engine=chosen)


def export_onnx(
    quantized: Result | nn.Module, path: str | os.PathLike[str], opset: int | None = None
) -> None:
    """Write a quantized model as ONNX, for any runtime: the integers between Q and DQ nodes.

    opset: the version of ONNX's operators; by default the lowest that holds the formats: 13, or 21
        for 16 and 4 bits and for groups.

    Names of inputs and parameters stay, and sizes that may vary are named. ONNX's own checker has
    passed the file, which appears whole or not at all.

    Raises ``ArgumentError`` for a model that is not quantized, of which only parts are programs, or
    with an operator that has no form in ONNX; ``MissingExtraError`` without the package onnx, and
    ``OSError`` when the disk refuses.

    >>> import tempfile, torch
    >>> from halfstep.flows import ptq
    >>> from halfstep.flows.ship import export_onnx
    >>> result = ptq.quantize(torch.nn.Linear(8, 4), torch.randn(32, 8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(result, f"{folder}/linear.onnx")
    """
    # The translation is a fifth of the package, and few call it.
    from halfstep.engines.onnx_export import onnx_bytes  # noqa: PLC0415

    place, model = as_path(path), model_in(quantized)
    content = onnx_bytes(_whole(model), model, opset)
    with replacing(place) as file:
        file.write(content)


def _whole(model: nn.Module) -> Quantized:
    """The one program that is the whole model."""
    forward = vars(model).get("forward")
    parts = forward.programs if isinstance(forward, Forward) else []
    if not parts:
        raise ArgumentError(
            f"only parts of this {type(model).__name__} are programs, and ONNX holds no Python: "
            "quantize it with data, so that it is captured as a whole; where it was, the coverage "
            "names the line of its code that cannot be captured, and the parts can be exported by "
            "themselves"
        )
    if len(parts) > 1:
        raise ArgumentError(
            f"the model is captured in {len(parts)} forms, for different kinds of arguments, and "
            "an ONNX file holds one: quantize it with arguments of one kind"
        )
    return parts[0] if isinstance(parts[0], Quantized) else Quantized(parts[0])
