"""A second device for machines that have one: tensors that compute on the CPU and are not of it.

Within `second_device()`, the device `meta` holds real numbers. An operation on tensors of both
devices raises `Mixture`, as CUDA would, but for copies and for CPU tensors without dimensions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

SECOND = torch.device("meta")
_COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)


class Mixture(RuntimeError):
    """An operation on tensors of two devices."""


class Elsewhere(Tensor):
    """A tensor of the second device; `numbers` holds what it computes with."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> "Elsewhere":
        made: Elsewhere = torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=SECOND,
        )
        return made

    def __init__(self, real: Tensor) -> None:
        self.numbers = real

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(operation, args, kwargs or {})


class _Factories(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors of the second device where code asks for them."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _run(operation, args, kwargs or {})


@contextmanager
def second_device() -> Iterator[torch.device]:
    with _Factories():  # type: ignore[no-untyped-call]
        yield SECOND


def _run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    here = [value for value in tensors if not isinstance(value, Elsewhere)]
    there = [value for value in tensors if isinstance(value, Elsewhere)]
    if operation not in _COPIES and there and any(value.dim() for value in here):
        raise Mixture(f"{operation} got tensors of the CPU and of the second device")
    asked = kwargs.get("device")
    wrapped = bool(there) if asked is None else torch.device(asked) == SECOND
    plain = {**kwargs, "device": torch.device("cpu")} if asked is not None else kwargs
    found = operation(*_real(args), **_real(plain))
    if not wrapped:
        return found
    result = tree_map(lambda value: Elsewhere(value) if isinstance(value, Tensor) else value, found)
    if not there:
        return result
    given = operation, args, kwargs, result
    return return_and_correct_aliasing(*given)  # type: ignore[no-untyped-call]


def _real(values: Any) -> Any:
    return tree_map(lambda value: value.numbers if isinstance(value, Elsewhere) else value, values)
