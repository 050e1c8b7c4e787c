"""A checked model in onnxruntime: one record a call, or many at once for a vetted model.

A call that fails leaves NaN for its record; `confide.protocol.models.results` makes all rows valid.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

Array = NDArray[Any]

INPUTS = {
    f"tensor({name})": np.dtype(kind)
    for name, kind in {
        "float": "f4",
        "double": "f8",
        "float16": "f2",
        "int8": "i1",
        "int16": "i2",
        "int32": "i4",
        "int64": "i8",
        "uint8": "u1",
        "uint16": "u2",
        "uint32": "u4",
        "uint64": "u8",
    }.items()
}
OUTPUTS = {name: INPUTS[name] for name in ("tensor(float)", "tensor(double)", "tensor(float16)")}


class Session:
    """A checked model in onnxruntime, on one thread."""

    def __init__(self, runtime: Any) -> None:
        inputs, last = runtime.get_inputs(), runtime.get_outputs()[-1]
        if len(inputs) != 1 or inputs[0].type not in INPUTS:
            found = ", ".join(f"{entry.name} {entry.type}" for entry in inputs)
            raise BadInput(f"its inputs are {found or 'none'}; accepted is one tensor of numbers")
        if last.type not in OUTPUTS:
            raise BadInput(
                f"its last output is {last.type}; accepted is a tensor of floats (scikit-learn: "
                "without ZipMap)"
            )
        self._dtype, self._shape = INPUTS[inputs[0].type], tuple(inputs[0].shape or ())
        if not self._shape or not (self._shape[0] in (None, 1) or isinstance(self._shape[0], str)):
            raise BadInput(
                f"its input has shape {list(self._shape)}; accepted is any number of records, or "
                "1, at the front"
            )
        self._runtime, self._input, self._output, self._result = (
            runtime,
            inputs[0].name,
            last.name,
            OUTPUTS[last.type],
        )
        # A model of one number a record may return (n,) instead of (n, 1).
        self._flat = last.shape is not None and len(last.shape) == 1
        self._width = 1 if self._flat else last.shape[-1] if last.shape else None

    @property
    def record_size(self) -> int | None:
        """How many numbers a record has, if the model declares it."""
        asked = self._shape[1:]
        return math.prod(asked) if all(isinstance(size, int) for size in asked) else None

    @property
    def outputs(self) -> int | None:
        """How many results a record has, if the model declares it."""
        return self._width if isinstance(self._width, int) else None

    def arrange(self, features: Array) -> Array:
        """Give rows of numbers the shape that the model declares for a record, if they fit it."""
        asked = self._shape[1:]
        if len(asked) > 1 and self.record_size == math.prod(features.shape[1:]):
            return features.reshape(len(features), *asked)
        return features

    def accept(self, shape: tuple[int, ...], labels: int) -> None:
        """Refuse features, or a number of labels, that the model does not declare.

        Neither depends on a record.
        """
        asked = self._shape[1:]
        if len(asked) != len(shape) or any(
            isinstance(a, int) and a != g for a, g in zip(asked, shape, strict=True)
        ):
            raise BadInput(f"a record's features have shape {shape}; the model accepts {asked}")
        if isinstance(self._width, int) and self._width != labels:
            raise BadInput(
                f"the model has {self._width} outputs; accepted is one for each of {labels} labels "
                "or numbers that the score reads"
            )

    def each(
        self,
        features: Array,
        found: Array,
        *,
        begin: int = 0,
        starting: Callable[[int], None] | None = None,
    ) -> None:
        """Run the model on each record from `begin` on, and write its results into `found`.

        `starting` is called with the record's place before each run. A record on which the model
        fails gets NaN.
        """
        values, labels = self._values(features), found.shape[1]
        # Buffers for one record and one result; onnxruntime refuses to fill them with a result of
        # another shape. Binding them once takes about a third off the time of a call.
        record, result = (
            np.empty((1, *values.shape[1:]), self._dtype),
            np.empty((1,) if self._flat else (1, labels), self._result),
        )
        binding, run = self._runtime.io_binding(), self._runtime.run_with_iobinding
        binding.bind_input(
            self._input, "cpu", 0, self._dtype.type, record.shape, record.ctypes.data
        )
        binding.bind_output(
            self._output, "cpu", 0, self._result.type, result.shape, result.ctypes.data
        )
        with np.errstate(over="ignore"):
            for i in range(begin, len(values)):
                if starting is not None:
                    starting(i)
                record[0] = values[i]
                # No result of the record before may remain.
                result.fill(np.nan)
                try:
                    run(binding)
                except Exception:  # the record has no result, and nobody else may learn why
                    result.fill(np.nan)
                found[i] = result

    def together(self, features: Array, found: Array) -> None:
        """Run the model once on all records; a failure on one record is an exception for all."""
        (result,) = self._runtime.run([self._output], {self._input: self._values(features)})
        if self._flat and result.ndim == 1:
            result = result[:, None]
        if result.shape != found.shape:
            raise BadInput(f"the model returns shape {result.shape}; accepted is {found.shape}")
        with np.errstate(over="ignore"):
            found[...] = result

    def _values(self, features: Array) -> Array:
        """The features in the model's number type."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(features, dtype=self._dtype)


def load_runtime(checked: bytes) -> Any:
    """Give a checked graph to onnxruntime, on one thread and without memory between calls."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise BadInput(
            "models need the packages onnx and onnxruntime; install confide[client]"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # Off, because one call would leave buffers and memory plans for the next.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    # Silent: messages of onnxruntime about a failure may hold values of records.
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        # No fallback: a call that fails must not make another session for later calls.
        return onnxruntime.InferenceSession(
            checked, options, providers=["CPUExecutionProvider"], enable_fallback=False
        )
    except Exception as error:  # its errors share no class
        raise BadInput(f"onnxruntime cannot load it: {type(error).__name__}") from None
