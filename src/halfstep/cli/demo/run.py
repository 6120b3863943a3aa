"""``halfstep demo``: a small trained network, quantized and run here, step by step."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from torch import Tensor

from halfstep.cli.columns import columns_of, print_columns
from halfstep.cli.console import output_console, print_plain
from halfstep.cli.demo.network import Digits, accuracy, load_digits
from halfstep.cli.words import number, size
from halfstep.flows import ptq
from halfstep.flows.deploy import bench
from halfstep.flows.result import Result
from halfstep.flows.ship import load, save
from halfstep.flows.timing import FLOAT
from halfstep.formats import save_tensors
from halfstep.spec.recipes import static_int8
from halfstep.tensor import QTensor

SHOWN: Final = "fc.weight"
ENGINE: Final = "torch"
_BATCH: Final = 16
_NUMBERS: Final = 8
_COLUMNS: Final = ("", "file", "ms", "digits right", "SQNR")


def run_demo(folder: Path | None) -> None:
    """Quantize the network, run it in integers, and show what it cost; files go to ``folder``."""
    console = output_console()
    place = Path(tempfile.mkdtemp(prefix="halfstep-demo-")) if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    about = f"{len(digits.calibration)} images to find ranges, {len(digits.images)} others to score"
    print_plain(
        f"A network that reads digits: 4 convolutions and a linear layer; {about}.", console
    )
    result = ptq.quantize(
        digits.model, list(digits.calibration.split(_BATCH)), static_int8(), progress=False
    )
    paths = place / "digits.safetensors", place / "digits.halfstep"
    save_tensors(digits.model.state_dict(), paths[0])
    save(result, paths[1])
    _print_integers(digits, result, console)
    _print_table(digits, paths, console)
    for line in _last_words(result, paths):
        print_plain(line, console)


def _print_integers(digits: Digits, result: Result, console: Console) -> None:
    """The first numbers of a weight, before and after."""
    q = result.model.get_parameter(SHOWN)
    if not isinstance(q, QTensor):  # a recipe of its own decides that it is one
        return
    scale = q.qparams()[0][0].item()
    before, codes, after = digits.model.get_parameter(SHOWN), q.int_repr(), q.dequantize()
    console.print()
    print_plain(
        f"The weight {SHOWN} {tuple(q.shape)} is {q.spec.dtype} now. It begins with", console
    )
    lines = {
        "before": before.detach()[0],
        f"integers, scale {number(scale)}": codes[0],
        "after": after[0],
    }
    for title, values in lines.items():
        print_plain(f"  {title:<28} {_numbers(values)}", console)
    error = q.quantization_error(digits.model.get_parameter(SHOWN).detach())
    print_plain(f"  off by at most {error.max_steps:.3f} steps, {error.sqnr:.1f} dB", console)
    console.print()


def _numbers(values: Tensor) -> str:
    texts = [
        f"{v:.3f}" if values.is_floating_point() else str(v) for v in values[:_NUMBERS].tolist()
    ]
    return " ".join(text.rjust(6) for text in texts)


def _print_table(digits: Digits, paths: tuple[Path, Path], console: Console) -> None:
    """Before and after, the model read back from its file."""
    model = load(paths[1], engine=ENGINE)
    times = bench(model, digits.images, engines=[ENGINE], float_model=digits.model)
    rows = []
    for title, engine, one, path in (
        ("float32", FLOAT, digits.model, paths[0]),
        ("int8", ENGINE, model, paths[1]),
    ):
        right = accuracy(one, digits.images, digits.classes)
        count = f"{round(right * len(digits.images))} of {len(digits.images)}"
        sqnr, ms = times[engine].sqnr, times[engine].ms
        cells = (
            title,
            size(path.stat().st_size),
            number(ms),
            f"{count} ({right:.1%})",
            "-" if sqnr is None else f"{sqnr:.1f} dB",
        )
        rows.append(dict(zip(_COLUMNS, cells, strict=True)))
    print_columns(columns_of(rows, _COLUMNS), console, right=set(_COLUMNS[1:]))
    print_plain(f"ms for {len(digits.images)} images, {times.threads} threads", console)


def _last_words(result: Result, paths: tuple[Path, Path]) -> Iterator[str]:
    yield result.coverage.totals
    for name, found in result.summary.equality.items():
        yield f"engine {name}: {found}"
    yield ""
    yield "Files:"
    yield from (f"  {path}" for path in paths)
    yield "Next:"
    yield f"  halfstep inspect {paths[1]} --tensor {SHOWN}"
    yield f"  halfstep bench {paths[1]}"
