"""Weight-only quantization of a file: what hs.quantize gives, and nothing else touched."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from halfstep.errors import ArgumentError, FileFormatError
from halfstep.formats import load_tensors, quantize_file, save_model, save_tensors
from halfstep.spec import PerChannel, PerGroup, QSpec, int4, int8
from halfstep.tensor import QTensor, quantize
from tests.formats.stored_models import Net, by_hand

GROUPS = QSpec(int4, PerGroup(1, 32), symmetric=True)
CHANNELS = QSpec(int8, PerChannel(0), symmetric=True)


def content() -> dict[str, Any]:
    """Tensors of every fate."""
    broken = torch.ones(2, 64)
    broken[0, 0] = torch.inf
    return {
        "fc.weight": torch.randn(8, 64),
        "half.weight": torch.randn(4, 32).to(torch.bfloat16),
        "conv.weight": torch.randn(4, 64, 3, 3),
        "fc.bias": torch.randn(8),
        "odd.weight": torch.randn(4, 50),
        "broken": broken,
        "empty": torch.ones(0, 32),
        "steps": torch.tensor([[1, 2]]),
        "head.weight": torch.randn(3, 64),
        "taken": torch.randn(2, 32),
        "taken:scale": torch.ones(1),
        "done": quantize(torch.randn(3, 3), CHANNELS),
    }


KEPT = {
    "fc.bias": "it has 1 dimension",
    "odd.weight": "group size 32 does not divide axis 1, which has 50 values",
    "broken": "it holds values that are not finite (1)",
    "empty": "it is empty",
    "steps": "it is int64",
    "head.weight": "excluded",
    "taken": "the name taken:scale is taken",
    "taken:scale": "it has 1 dimension",
    "done": "it is int8 already",
}


@pytest.mark.parametrize("kind", ["safetensors", "checkpoint"])
def test_weights_become_integers_and_all_else_stays(tmp_path: Path, kind: str) -> None:
    """Each quantized as hs.quantize does, the others byte for byte, each with its reason."""
    tensors = content()
    source, target = tmp_path / "a", tmp_path / "b.safetensors"
    if kind == "checkpoint":
        torch.save({**tensors, "epoch": 3}, source)
    else:
        save_tensors(tensors, source)
    report = quantize_file(source, target, GROUPS, exclude=["head.*"])
    loaded = load_tensors(target)
    assert list(loaded) == list(tensors)
    assert report.left_out == (("epoch",) if kind == "checkpoint" else ())
    for row in report.rows:
        assert row.kept.startswith(KEPT.get(row.name, "")), row
        assert bool(row.kept) == (row.name in KEPT)
        expected, found = tensors[row.name], loaded[row.name]
        if not row.kept:
            expected = quantize(expected, GROUPS)
        assert found.dtype == expected.dtype
        if isinstance(expected, QTensor):
            assert isinstance(found, QTensor)
            assert found.spec == expected.spec
            assert torch.equal(found.int_repr(), expected.int_repr())
            assert all(map(torch.equal, found.qparams(), expected.qparams()))
        else:
            assert torch.equal(found, expected)
    assert report.after < report.before


def test_the_report_counts_the_bytes_of_the_file(tmp_path: Path) -> None:
    """Scales and zero points included; the text lists every tensor."""
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_tensors(content(), source)
    report = quantize_file(source, target, GROUPS)
    data = target.read_bytes()
    assert report.after == len(data) - 8 - int.from_bytes(data[:8], "little")
    text = str(report)
    assert "fc.weight: 2048 -> 384 bytes" in text
    assert text.count("\n") == len(report.rows)


def test_metadata_of_others_stays(tmp_path: Path) -> None:
    """Texts that a safetensors file carries are carried on."""
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_file({"w": torch.randn(4, 32)}, source, {"format": "pt", "license": "mine"})
    quantize_file(source, target, GROUPS)
    with safe_open(target, framework="pt") as file:
        metadata = file.metadata()
    assert {key: metadata[key] for key in ("format", "license")} == {
        "format": "pt",
        "license": "mine",
    }


def test_a_file_can_be_replaced_by_its_quantized_form(tmp_path: Path) -> None:
    """The source may be the target."""
    path, weight = tmp_path / "a.safetensors", torch.randn(4, 32)
    save_tensors({"w": weight}, path)
    quantize_file(path, path, CHANNELS)
    found = load_tensors(path)["w"]
    assert isinstance(found, QTensor)
    assert torch.equal(found.int_repr(), quantize(weight, CHANNELS).int_repr())


def test_what_cannot_be_done_is_refused(tmp_path: Path) -> None:
    """An exclusion that matches nothing, a quantized model, and tensors that cannot be read."""
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_tensors(content(), source)
    with pytest.raises(ArgumentError, match=r"no tensor matches 'fc.wieght': .* fc\.weight"):
        quantize_file(source, target, GROUPS, exclude=["fc.wieght"])
    save_model(tmp_path / "m.halfstep", by_hand(Net(), torch.randn(2, 1, 8, 8)))
    with pytest.raises(ArgumentError, match="is a quantized model: give the file of the float"):
        quantize_file(tmp_path / "m.halfstep", target, GROUPS)
    torch.save({"w": torch.eye(2).to_sparse()}, tmp_path / "sparse.pt")
    with pytest.raises(FileFormatError, match="tensor 'w' cannot be read: it is sparse"):
        quantize_file(tmp_path / "sparse.pt", target, GROUPS)
    assert not target.exists()


def anonymous() -> int:
    """The bytes of memory of this process that are no pages of files."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_bounded_by_one_tensor(tmp_path: Path) -> None:
    """What a tensor took is free again when it is done: 128 MB never take more than 60."""
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_tensors({f"w{i}": torch.randn(2000, 2000) for i in range(8)}, source)
    seen: list[int] = []
    before = anonymous()
    quantize_file(source, target, CHANNELS, progress=lambda count: seen.append(anonymous()))
    assert len(seen) == 8
    assert max(seen) - before < 60 << 20
