"""Write a torch module as an ONNX file, like those of `confide.protocol.architectures.export`."""

import logging
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.architectures.base import Network
from confide.protocol.errors import BadInput

_OPSET = 18


def module_file(network: Network, weights: Mapping[str, NDArray[Any]], *, centre: float) -> bytes:
    """Export the network's module, in single precision and in the mode of inference."""
    import torch

    try:
        import onnxscript  # noqa: F401
    except ModuleNotFoundError:
        raise BadInput(
            "exporting a module of another package needs onnxscript; install confide[train]"
        ) from None

    module = network.module().float().eval()
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(torch.from_numpy(np.array(value, dtype=np.float32)))

    class Whole(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, features: Any) -> Any:
            inputs = (features.clamp(0.0, 1.0) - centre) / max(centre, 1 - centre)
            return torch.softmax(self.inner(inputs), dim=-1)

    records = torch.export.Dim("records")
    with warnings.catch_warnings():
        # The exporter warns of packages that are not installed and of its own deprecations.
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program: Any = torch.onnx.export(
            Whole().eval(),
            (torch.zeros(2, network.features),),
            input_names=["features"],
            output_names=["probabilities"],
            dynamic_shapes=({0: records},),
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
    written: bytes = program.model_proto.SerializeToString(deterministic=True)
    return written
