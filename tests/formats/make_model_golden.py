"""Writes the model files in golden/: run it as a script where the format gains something.

Older files stay: whatever wrote them, their models give the stored outputs bit for bit.
"""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from halfstep.formats import save_model
from tests.formats.stored_models import Net, Odd, by_hand

GOLDEN = Path(__file__).parent / "golden"
SHAPES = {"net": (3, 1, 8, 8), "odd": (5, 4)}


def numbers(name: str) -> Tensor:
    """The input of a model, whose values are exact in float32."""
    shape = SHAPES[name]
    return ((torch.arange(torch.Size(shape).numel()) * 37 % 101) / 32 - 1.5).reshape(shape)


def outputs(name: str, model: nn.Module) -> list[str]:
    """What a model returns for its input, in hexadecimal digits."""
    with torch.no_grad():
        found = model(numbers(name))
    tensor = found["logits"] if isinstance(found, dict) else found
    return [value.hex() for value in tensor.flatten().tolist()]


def main() -> None:
    """Write both files and what they give."""
    torch.manual_seed(0)
    models = {
        "net": by_hand(Net(), torch.randn(3, 1, 8, 8)),
        "odd": by_hand(Odd(), torch.randn(5, 4)),
    }
    expected = {}
    for name, model in models.items():
        save_model(GOLDEN / f"{name}.halfstep", model, calibrated=1, extra={"for": "the tests"})
        expected[name] = outputs(name, model)
    text = json.dumps(expected, indent=1) + "\n"
    (GOLDEN / "model_outputs.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
