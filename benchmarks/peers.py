"""What a user could run instead, each built from the same float model and the same data.

A builder takes the network and the number of threads and gives a call without arguments. It may
raise: that the peer cannot do this model is a result.
"""

import copy
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from networks import Network
from torch import Tensor
from torch._inductor import config as inductor

Call = Callable[[], Any]
Build = Callable[[Network, int], Call]


@dataclass(frozen=True)
class Peer:
    """A way to run a network: how it computes, the packages that it needs, how it is built."""

    name: str
    kind: str  # float, static or dynamic
    needs: tuple[str, ...]
    build: Build


def _call(model: Callable[..., Any], network: Network) -> Call:
    return lambda: model(*network.inputs)


# --- inside PyTorch


def eager(network: Network, threads: int) -> Call:
    """The model as it is."""
    return _call(network.model, network)


def compiled(network: Network, threads: int) -> Call:
    """`torch.compile` with constants folded, its fastest setting for inference."""
    return _frozen(network.model, network)


def _frozen(model: Callable[..., Any], network: Network) -> Call:
    torch._dynamo.reset()  # noqa: SLF001  (has no public name)
    call = _call(torch.compile(model), network)
    with inductor.patch(freezing=True):
        call()
    return call


def fx(network: Network, threads: int) -> Call:
    """torch.ao's FX graph mode with its x86 settings."""
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx  # noqa: PLC0415

    torch.backends.quantized.engine = "x86"
    model = copy.deepcopy(network.model)
    mapping = get_default_qconfig_mapping("x86")
    prepared = quantize_fx.prepare_fx(model, mapping, network.inputs)
    _calibrate(prepared, network)
    return _call(quantize_fx.convert_fx(prepared), network)


def dynamic(network: Network, threads: int) -> Call:
    """torch.ao's dynamic quantization of linear layers."""
    from torch.ao.quantization import quantize_dynamic  # noqa: PLC0415

    torch.backends.quantized.engine = "x86"
    model = copy.deepcopy(network.model)
    return _call(quantize_dynamic(model, {torch.nn.Linear}, torch.qint8), network)


def pt2e(network: Network, threads: int, *, is_dynamic: bool = False) -> Call:
    """torchao's export path with the x86 quantizer, compiled."""
    from torchao.quantization.pt2e import quantize_pt2e  # noqa: PLC0415
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86  # noqa: PLC0415

    exported = torch.export.export(network.model, network.inputs).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic))
    prepared = quantize_pt2e.prepare_pt2e(exported, quantizer)
    _calibrate(prepared, network)
    return _frozen(quantize_pt2e.convert_pt2e(prepared), network)


def pt2e_dynamic(network: Network, threads: int) -> Call:
    """The same with ranges found at run time."""
    return pt2e(network, threads, is_dynamic=True)


def _calibrate(model: Callable[..., Any], network: Network) -> None:
    for inputs in network.calibration:
        model(*inputs)


# --- ONNX Runtime


def _exported(network: Network, folder: str) -> Path:
    path = Path(folder) / "float.onnx"
    names = [f"x{index}" for index in range(len(network.inputs))]
    torch.onnx.export(
        network.model, network.inputs, path, input_names=names, verbose=False, external_data=False
    )
    return path


def _fed(inputs: tuple[Tensor, ...]) -> dict[str, Any]:
    return {f"x{index}": x.numpy() for index, x in enumerate(inputs)}


def _session(path: Path, network: Network, threads: int) -> Call:
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    fed = _fed(network.inputs)
    return lambda: torch.from_numpy(session.run(None, fed)[0])


def onnxruntime_float(network: Network, threads: int) -> Call:
    """PyTorch's ONNX export in ONNX Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        return _session(_exported(network, folder), network, threads)


def onnxruntime_static(network: Network, threads: int) -> Call:
    """ONNX Runtime's own static quantization: QDQ, uint8 activations, weights per channel."""
    from onnxruntime import quantization  # noqa: PLC0415
    from onnxruntime.quantization import shape_inference  # noqa: PLC0415

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]  # the package has no annotations
        def __init__(self) -> None:
            self.batches: Iterator[Mapping[str, Any]] = map(_fed, iter(network.calibration))

        def get_next(self) -> Mapping[str, Any] | None:
            return next(self.batches, None)

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "inferred.onnx", Path(folder) / "int8.onnx"
        exported = str(_exported(network, folder))
        # All sizes are numbers, so nothing needs the symbolic inference, which fails on MiniLM.
        shape_inference.quant_pre_process(exported, str(source), skip_symbolic_shape=True)
        codes = quantization.QuantType
        kinds = {"activation_type": codes.QUInt8, "weight_type": codes.QInt8}
        quantization.quantize_static(source, target, Reader(), per_channel=True, **kinds)
        return _session(target, network, threads)


def onnxruntime_dynamic(network: Network, threads: int) -> Call:
    """ONNX Runtime's own dynamic quantization."""
    from onnxruntime.quantization import quantize_dynamic  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "int8.onnx"
        quantize_dynamic(_exported(network, folder), target, per_channel=True)
        return _session(target, network, threads)


# --- OpenVINO


def _read(network: Network) -> Any:
    import openvino  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        return openvino.Core().read_model(_exported(network, folder).read_bytes())


def _openvino(model: Any, network: Network, threads: int, **settings: str) -> Call:
    import openvino  # noqa: PLC0415

    settings |= {"INFERENCE_NUM_THREADS": str(threads), "PERFORMANCE_HINT": "LATENCY"}
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    fed = _fed(network.inputs)
    return lambda: torch.from_numpy(request.infer(fed)[0])


def openvino_float(network: Network, threads: int) -> Call:
    """The same ONNX file in OpenVINO, which would compute in bfloat16 where the machine can."""
    return _openvino(_read(network), network, threads, INFERENCE_PRECISION_HINT="f32")


def openvino_static(network: Network, threads: int) -> Call:
    """NNCF's quantization, in its transformer mode for a transformer, run by OpenVINO."""
    os.environ.setdefault("NNCF_CI", "1")  # else it sends usage reports
    import nncf  # noqa: PLC0415

    data = nncf.Dataset([_fed(inputs) for inputs in network.calibration])
    mode = nncf.ModelType.TRANSFORMER if network.transformer else None
    model = nncf.quantize(
        _read(network), data, model_type=mode, subset_size=len(network.calibration)
    )
    return _openvino(model, network, threads)


PEERS = (
    Peer("torch", "float", (), eager),
    Peer("torch.compile", "float", (), compiled),
    Peer("torch.ao FX x86", "static", (), fx),
    Peer("torch.ao dynamic", "dynamic", (), dynamic),
    Peer("torchao PT2E", "static", ("torchao",), pt2e),
    Peer("torchao PT2E dynamic", "dynamic", ("torchao",), pt2e_dynamic),
    Peer("ONNX Runtime", "float", ("onnxruntime", "onnxscript"), onnxruntime_float),
    Peer("ONNX Runtime int8", "static", ("onnxruntime", "onnxscript"), onnxruntime_static),
    Peer("ONNX Runtime dynamic", "dynamic", ("onnxruntime", "onnxscript"), onnxruntime_dynamic),
    Peer("OpenVINO", "float", ("openvino", "onnxscript"), openvino_float),
    Peer("NNCF in OpenVINO", "static", ("openvino", "nncf", "onnxscript"), openvino_static),
)
