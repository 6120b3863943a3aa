"""A real network in integers: EfficientNet-Lite0, calibrated on photographs, scored on others.

    make demo
    python examples/demo.py [FOLDER]

The ranges are found on the sixteen photographs of scikit-image. The twenty labelled images of
foolbox score the network before and after, on every engine that is installed. A report shows where
the accuracy went, layer by layer. The files go to FOLDER, by default to a temporary one.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import halfstep as hs
from halfstep.flows.deploy import bench

try:
    from real.effnet_lite0 import labelled_images, load_model, photographs
except ImportError as error:
    sys.exit(f"The demo's network or images are not installed ({error}): run `make demo`.")

HEAD = f"{'':<20}{'file':>10}{'ms':>9}{'top-1':>9}{'as float':>10}{'SQNR':>10}"


def main() -> None:
    """Quantize, save, and measure before and after."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="halfstep-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(
        "EfficientNet-Lite0: weights trained on ImageNet, 16 photographs to calibrate on",
        flush=True,
    )
    model, batches = load_model(), list(photographs().split(4))
    start = time.perf_counter()
    result = hs.ptq.quantize(model, batches, hs.recipes.static_int8())
    print(f"quantized in {time.perf_counter() - start:.1f} s")
    print(f"\n{result.summary}\n{result.coverage.totals}\n", flush=True)
    for path in write(model, result, folder):
        print(f"written: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    print(flush=True)
    print_table(model, result, folder)
    print("\nexplaining it, layer by layer ...", flush=True)
    report = hs.explain(model, result, batches).to_html(folder / "report.html")
    print(f"written: {report} (open it in a browser)")
    print(f"next: halfstep inspect {folder / 'int8.halfstep'}")


def write(model: nn.Module, result: hs.Result, folder: Path) -> list[Path]:
    """The float weights, the quantized model, and where the package is there an ONNX file."""
    paths = [folder / "float32.safetensors", folder / "int8.halfstep", folder / "int8.onnx"]
    hs.save_tensors(model.state_dict(), paths[0])
    hs.save(result, paths[1])
    try:
        hs.export_onnx(result, paths[2])
    except hs.MissingExtraError as error:
        print(f"no ONNX file: {error}")
    return [path for path in paths if path.exists()]


def print_table(model: nn.Module, result: hs.Result, folder: Path) -> None:
    """A row for the float network and one for every engine: one image a call, then all twenty."""
    images, classes = labelled_images()
    times = bench(result, images[:1], float_model=model)
    with torch.inference_mode():
        expected = model(images)
        print(HEAD)
        for row in sorted(times, key=lambda row: row.engine != "float"):
            if row.ms is None:
                print(f"int8 {row.engine}: does not run here: {row.note}")
            elif row.engine == "float":
                print_row("float32", folder / "float32.safetensors", row.ms, expected, classes)
            else:
                found = hs.deploy(result, engine=row.engine)(images)
                file = "int8.halfstep" if row.engine == "torch" else "int8.onnx"
                print_row(f"int8 {row.engine}", folder / file, row.ms, found, classes, expected)
    print(f"\nms for one image, {times.threads} threads; fastest here: {times.fastest}")


def print_row(
    title: str,
    path: Path,
    ms: float,
    found: Tensor,
    classes: Tensor,
    expected: Tensor | None = None,
) -> None:
    """How often the first answer is right, and how near the logits are to the float ones."""
    answers = found.argmax(dim=1)
    right = f"{int((answers == classes).sum())}/{len(classes)}"
    same, sqnr = "-", "-"
    if expected is not None:
        same = f"{int((answers == expected.argmax(dim=1)).sum())}/{len(classes)}"
        noise = (expected - found).double().square().sum()
        sqnr = f"{10 * float(torch.log10(expected.double().square().sum() / noise)):.1f} dB"
    size = f"{path.stat().st_size / 1e6:.1f} MB"
    print(f"{title:<20}{size:>10}{ms:>9.2f}{right:>9}{same:>10}{sqnr:>10}")


if __name__ == "__main__":
    main()
