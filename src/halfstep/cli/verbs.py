"""The options of the commands that quantize, run and export models."""

from pathlib import Path
from typing import Annotated

import typer

from halfstep.cli.demo.run import run_demo
from halfstep.cli.explaining import Question, explain_file
from halfstep.cli.quantizing import Order, quantize_model
from halfstep.cli.saved import bench_file, export_file

MODEL = (
    "A .pt2 file of torch.export.save (torch loads it, and may run code in it: open only what you "
    "trust); or package.module:factory, which is your own code, imported from here and run; or a "
    ".safetensors file with --weight-only."
)
DATA = (
    "A .npy, .npz, .safetensors or .pt file of tensors, whose first dimension is the samples; or "
    "package.module:iterable, your own code, which gives batches."
)
RECIPE = (
    "static_int8, dynamic_int8, weight_only, or a JSON file of Recipe.to_json(); by default static "
    "with --data and dynamic without."
)
FLOAT = (
    "The float model, as for quantize: needed where only parts of the model are in the file; bench "
    "measures it too."
)
EXPLAINED = "The float model: a .pt2 file or package.module:factory, as for quantize."
Weights = Annotated[
    Path | None,
    typer.Option(help="Fill the model with this .safetensors or .pt file; runs no code in it."),
]
WeightOnly = Annotated[
    str | None, typer.Option(help="Weights alone, in this format: int8, int4, ...")
]
GroupSize = Annotated[
    int | None, typer.Option(help="So many weights share a scale: 32, 64 or 128.")
]
KeepFloat = Annotated[
    list[str] | None,
    typer.Option(help="Leave this layer (or tensor) as it is: name or glob; may be repeated."),
]
MinSqnr = Annotated[
    float | None,
    typer.Option(
        min=0, help="Keep layers in float until the outputs reach so many dB; needs --data."
    ),
]
Saved = Annotated[Path, typer.Argument(help="A .halfstep file.", metavar="MODEL")]


def quantize(  # noqa: PLR0913  (the options of one command)
    model: Annotated[str, typer.Argument(help=MODEL, metavar="MODEL")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .halfstep file to write.")],
    data: Annotated[str | None, typer.Option(help=DATA)] = None,
    recipe: Annotated[str | None, typer.Option(help=RECIPE)] = None,
    weights: Weights = None,
    weight_only: WeightOnly = None,
    group_size: GroupSize = None,
    keep_float: KeepFloat = None,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX file as well.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Of a data file.")] = None,
    max_batches: Annotated[int | None, typer.Option(min=1, help="Use no more batches.")] = None,
    engine: Annotated[str, typer.Option(help="What runs the model: torch or reference.")] = "torch",
    min_sqnr: MinSqnr = None,
    table: Annotated[
        bool, typer.Option("--table", help="Print a line for every operator.")
    ] = False,
) -> None:
    """Quantize a model, or a file of weights, and write it."""
    quantize_model(
        Order(
            model=model,
            output=output,
            data=data,
            recipe=recipe,
            weights=weights,
            weight_only=weight_only,
            group_size=group_size,
            keep_float=tuple(keep_float or ()),
            onnx=onnx,
            batch_size=batch_size,
            max_batches=max_batches,
            engine=engine,
            min_sqnr=min_sqnr,
            table=table,
        )
    )


def bench(  # noqa: PLR0913  (the options of one command)
    model: Saved,
    *,
    data: Annotated[str | None, typer.Option(help=f"What to run it on. {DATA}")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Of a random input, as 1,3,224,224; one for each input, in order."),
    ] = None,
    float_model: Annotated[str | None, typer.Option("--float", help=FLOAT)] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="Measure this engine; may be repeated.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the processor.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Measure every installed engine on a quantized model; by default on one random sample."""
    bench_file(
        model,
        data=data,
        shapes=shape or (),
        float_name=float_model,
        engines=engine or (),
        threads=threads,
        as_json=as_json,
    )


def export(
    model: Saved,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The ONNX file to write.")],
    opset: Annotated[
        int | None, typer.Option(help="Version of ONNX's operators; the lowest that serves.")
    ] = None,
    float_model: Annotated[str | None, typer.Option("--float", help=FLOAT)] = None,
) -> None:
    """Write a quantized model as ONNX, with QuantizeLinear and DequantizeLinear."""
    export_file(model, output, opset=opset, float_name=float_model)


def explain(  # noqa: PLR0913  (the options of one command)
    model: Annotated[str, typer.Argument(help=EXPLAINED, metavar="FLOAT")],
    quantized: Annotated[Path, typer.Argument(help="Its .halfstep file.", metavar="QUANT")],
    *,
    data: Annotated[str, typer.Option(help=f"What both are run on. {DATA}")],
    html: Annotated[Path | None, typer.Option(help="Write a page with all of it.")] = None,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write all of it as JSON, for machines.")
    ] = None,
    weights: Weights = None,
    min_sqnr: Annotated[
        float | None,
        typer.Option(
            min=0, help="Find the fewest layers which, in float, bring the output to so many dB."
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Of a data file.")] = None,
    max_batches: Annotated[int | None, typer.Option(min=1, help="Use no more batches.")] = None,
    untimed: Annotated[
        bool, typer.Option("--untimed", help="Measure no milliseconds, which takes longest.")
    ] = False,
) -> None:
    """Show where the accuracy of a quantized model went, layer by layer, and what to do."""
    explain_file(
        Question(
            model=model,
            quantized=quantized,
            data=data,
            weights=weights,
            batch_size=batch_size,
            max_batches=max_batches,
            min_sqnr=min_sqnr,
            timed=not untimed,
            html=html,
            json=json,
        )
    )


def demo(
    folder: Annotated[
        Path | None, typer.Argument(help="Where its files go; by default a temporary folder.")
    ] = None,
) -> None:
    """Quantize a small trained network that comes with Halfstep, and run it in integers."""
    run_demo(folder)
