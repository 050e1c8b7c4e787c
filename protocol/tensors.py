"""Arrays from numpy arrays, torch tensors and lists, without importing torch."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_tensor(values: Any) -> bool:
    """Whether these are a torch tensor; torch is loaded then, so it need not be imported."""
    return "torch" in sys.modules and isinstance(values, sys.modules["torch"].Tensor)


def as_array(values: Any) -> NDArray[Any]:
    """Return the values as an array; those of a tensor are brought to the processor's memory."""
    return np.asarray(values.detach().cpu().numpy() if is_tensor(values) else values)


def like(values: Any, found: NDArray[Any]) -> Any:
    """Return an array as what was given: a tensor on the same device, or the array itself."""
    return sys.modules["torch"].from_numpy(found).to(values.device) if is_tensor(values) else found
