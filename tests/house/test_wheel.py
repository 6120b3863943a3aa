"""What is published works: built, installed into a clean environment, and used there."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.house.repository import ROOT, committed_files

pytestmark = pytest.mark.slow

LARGEST_WHEEL = 2_000_000
LARGEST_DATA = 300_000
DATA = (".safetensors", ".npz", ".npy")
USE = """
import torch
import halfstep as hs
from halfstep.numerics import native

x = torch.tensor([[-1.0, 0.0], [0.5, 1.0]])
q = hs.quantize(x, hs.int8)
assert (q.dequantize() - x).abs().max() <= q.scale.max() / 2
print(hs.__file__, native.is_loaded())
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository alone, without anything built or installed."""
    copy = tmp_path_factory.mktemp("source")
    for path in committed_files():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return copy


def pip(*arguments: str | Path, **environment: str) -> None:
    """Run pip, offline: what a wheel needs is installed here already."""
    subprocess.run(
        [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments],
        check=True,
        env={**os.environ, "PIP_NO_INDEX": "1", **environment},
    )


def build(source: Path, target: Path, **environment: str) -> Path:
    """The wheel that an environment with these variables builds."""
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", target, source, **environment)
    (wheel,) = target.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """A fresh environment that holds the wheel, and sees this one's torch; its programs."""
    venv.create(folder, symlinks=True)
    bin_folder = folder / "bin"
    pip("--python", bin_folder / "python", "install", "--no-deps", wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    # A folder named in a .pth file is searched, but its own .pth files are not read: the editable
    # install of this environment stays out.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return bin_folder


def output(*command: str | Path) -> str:
    """What a command prints, run outside the repository."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HALFSTEP", "PYTHON"))}
    cwd = Path(command[0]).parent
    done = subprocess.run(
        command, capture_output=True, check=False, cwd=cwd, encoding="utf-8", env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def use(wheel: Path, folder: Path) -> bool:
    """Install and use the wheel; whether the native kernels did the work."""
    bin_folder = install(wheel, folder)
    assert output(bin_folder / "halfstep", "--version").strip().endswith("0.1.0")
    assert "torch" in output(bin_folder / "halfstep", "info")
    where, loaded = output(bin_folder / "python", "-c", USE).split()
    assert where.startswith(str(folder))
    return loaded == "True"


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_wheel_works_with_native_kernels(source: Path, tmp_path: Path) -> None:
    """The wheel is small, holds the package only, and quantizes with its kernels."""
    wheel = build(source, tmp_path / "wheel")
    assert wheel.stat().st_size < LARGEST_WHEEL
    with ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    assert {name.split("/")[0] for name in sizes} == {"halfstep", "halfstep-0.1.0.dist-info"}
    assert "halfstep/py.typed" in sizes
    data = [sizes[name] for name in sizes if name.endswith(DATA)]
    assert 0 < sum(data) < LARGEST_DATA
    assert use(wheel, tmp_path / "venv")


def test_pure_wheel_works(source: Path, tmp_path: Path) -> None:
    """HALFSTEP_PURE=1 gives one wheel for every platform; it works, and its demo has its data."""
    wheel = build(source, tmp_path / "wheel", HALFSTEP_PURE="1")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not use(wheel, tmp_path / "venv")
    shown = output(tmp_path / "venv/bin/halfstep", "demo", tmp_path / "demo")
    assert "equal to the reference in all" in shown


def test_installs_without_a_working_compiler(source: Path, tmp_path: Path) -> None:
    """Where C++ does not compile, the package installs and works in plain PyTorch."""
    wheel = build(source, tmp_path / "wheel", CXX="/bin/false")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not use(wheel, tmp_path / "venv")
