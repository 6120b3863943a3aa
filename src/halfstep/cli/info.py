"""``halfstep info``: what is installed, what the processor can do, and what is in use."""

import importlib.util
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import torch

from halfstep.cli.console import output_console, print_plain
from halfstep.numerics import native

_PACKAGES: Final = ("numpy", "safetensors")
_ENGINES: Final = {"onnxruntime": "onnx", "openvino": "openvino"}  # module -> extra of halfstep
_FEATURES: Final = ("avx2", "fma3", "f16c", "avx512_f", "avx512_vnni", "avx512_bf16", "amx_int8")


def print_info() -> None:
    """Print one fact a line."""
    console = output_console()
    facts = {**_versions(), **_processor(), "kernels": _kernels(), **_engines()}
    width = max(len(name) for name in facts) + 2
    for name, fact in facts.items():
        print_plain(f"{name.ljust(width)}{fact}", console)


def _versions() -> dict[str, str]:
    return {
        "halfstep": version("halfstep"),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "torch": torch.__version__,
        **{package: version(package) for package in _PACKAGES},
    }


def _processor() -> dict[str, str]:
    features = [name for name in _FEATURES if torch.cpu.get_capabilities().get(name)]
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": " ".join(features) or "no vector extensions that matter here",
        "threads": f"{torch.get_num_threads()} (torch.set_num_threads changes it)",
    }


def _kernels() -> str:
    if native.is_loaded():
        return f"native, {native.level()}"
    return f"plain PyTorch; native kernels are not in use: {native.why_not()}"


def _engines() -> dict[str, str]:
    found = {"engine torch": f"{torch.__version__}, always there"}
    for module, extra in _ENGINES.items():
        found[f"engine {module}"] = _engine(module, extra)
    return found


def _engine(module: str, extra: str) -> str:
    if importlib.util.find_spec(module) is None:
        return f'missing: not installed; pip install "halfstep[{extra}]"'
    try:
        return version(module)
    except PackageNotFoundError:
        return "found, of unknown version"
