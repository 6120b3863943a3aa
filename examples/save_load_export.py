"""Put a quantized model into a file, get it back, write it as ONNX, and pick the fastest engine."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import halfstep as hs

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 100, 10)).eval()
images = torch.randn(32, 3, 12, 12)
result = hs.ptq.quantize(model, images)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "net.halfstep"
    hs.save(result, path)
    loaded = hs.load(path)  # no code of the file is run
    print(torch.equal(loaded(images), result.model(images)))  # -> True
    print(loaded.get_parameter("3.weight").spec.dtype)  # -> int8
    print(list(hs.load_tensors(path))[:2])  # -> ['0.weight', '0.bias']

    # With the float model, it is of its class again.
    again = hs.load(path, model=model)
    print(type(again).__name__)  # -> Sequential

    try:
        hs.export_onnx(result, Path(folder) / "net.onnx")
        print("ONNX file written")
    except hs.MissingExtraError as error:  # pip install 'halfstep[onnx]'
        print(error)

fast = hs.deploy(result, engine="auto", example=images[:1])
print(fast(images).shape)  # -> torch.Size([32, 10])

# The reference computes the same integers with plain formulas.
exact = hs.deploy(result, engine="reference")
print(torch.equal(exact(images), result.model(images)))  # -> True
