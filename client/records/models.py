"""A model as a function of one record.

A model comes from outside and runs on private records, so it is treated as hostile. It is an ONNX
graph held in one piece of bytes, named by their SHA-256. Before anything runs, the graph is read
and refused if it could reach beyond the record before it: files, other code, random numbers, or
values that one call leaves for the next. The graph that was checked is written again, and that is
what onnxruntime is given. It then sees one record a call.

Whatever comes out is made a vector of probabilities: a result that is none, or no result at all,
counts as the uniform one. An error would tell the model's author, without noise, that some record
has a property of their choice.

Not closed: how long a record takes. A model may also exploit a fault of onnxruntime itself;
`confide.client.records.scorer` keeps one that merely ends the process, or takes too much memory or
time, from being noticed.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.records.operators import OPERATORS
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
COMMENTS = ("doc_string", "metadata_props", "configuration", "device_configurations")

BATCH = 4096
# Narrower than what `check_probabilities` accepts by more than the rounding of a sum, in whatever
# order it is taken.
TOLERANCE = 1e-3 - 1e-9


@dataclass(frozen=True)
class Model:
    """The bytes of a model and their SHA-256, by which plans and policies name it. Nothing is
    parsed by making one."""

    data: bytes
    digest: bytes

    def __post_init__(self) -> None:
        if hashlib.sha256(self.data).digest() != self.digest:
            raise BadInput(
                f"a model is named {self.digest.hex()}; accepted is the SHA-256 of its bytes"
            )

    @staticmethod
    def of(data: bytes) -> "Model":
        return Model(data, hashlib.sha256(data).digest())

    @staticmethod
    def read(path: Path) -> "Model":
        """Read the file once; the bytes that are hashed here are those that run later."""
        if path.suffix == ".pt2":
            raise BadInput(
                f"model {path} is a torch program, which runs code when it is loaded; export it to "
                ".onnx"
            )
        if path.suffix != ".onnx":
            raise BadInput(f"model {path} ends in {path.suffix or 'nothing'!r}; accepted is .onnx")
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BadInput(f"model {path} cannot be read: {error.strerror}") from None
        return Model.of(data)

    def open(self, name: str = "model") -> "Session":
        """Check the graph and make it ready to run."""
        try:
            return Session(_load(_checked(self.data)))
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None
        except UnicodeDecodeError:
            raise BadInput(
                f"{name}: it names an input or output by text that is not UTF-8"
            ) from None


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
        self._width = last.shape[-1] if last.shape else None

    def accept(self, shape: tuple[int, ...], labels: int | None = None) -> None:
        """Refuse records of another shape, or a plan of other labels, than the model declares;
        neither depends on a record."""
        asked = self._shape[1:]
        if len(asked) != len(shape) or any(
            isinstance(a, int) and a != g for a, g in zip(asked, shape, strict=True)
        ):
            raise BadInput(f"a record's features have shape {shape}; the model accepts {asked}")
        if labels is not None and isinstance(self._width, int) and self._width != labels:
            raise BadInput(
                f"the model has {self._width} outputs; accepted is one for each of {labels} labels"
            )

    def one_by_one(self, features: Array, labels: int) -> Array:
        """(n, labels) probabilities, a call for each record."""
        self.accept(features.shape[1:])
        found = np.empty((len(features), labels), dtype=np.float32)
        self.each(features, found)
        return valid(found)

    def batched(self, features: Array, labels: int) -> Array:
        """The same in calls of many records; only for a model that its owner knows to treat each
        record by itself."""
        self.accept(features.shape[1:])
        found = np.empty((len(features), labels), dtype=np.float32)
        for part in (slice(i, i + BATCH) for i in range(0, len(features), BATCH)):
            try:
                self.together(features[part], found[part])
            except Exception:  # one record's fault is not the others'
                self.each(features[part], found[part])
        return valid(found)

    def each(
        self,
        features: Array,
        found: Array,
        begin: int = 0,
        starting: Callable[[int], None] | None = None,
    ) -> None:
        """What the model returns for each record from `begin` on, into `found`; `starting` is told
        of every call."""
        values, labels = self._values(features), found.shape[1]
        # Room for one record and one result; onnxruntime refuses to fill it with a result of
        # another shape. That it is bound once takes about a third off the time of a call.
        record, result = (
            np.empty((1, *values.shape[1:]), self._dtype),
            np.empty((1, labels), self._result),
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
                # Nothing of the record before may stay.
                result.fill(np.nan)
                try:
                    run(binding)
                except (
                    Exception
                ):  # whatever it is, the record has no result, and nobody else may learn of it
                    result.fill(np.nan)
                found[i] = result

    def together(self, features: Array, found: Array) -> None:
        """The same in one call. What goes wrong with one record is an exception for all."""
        (result,) = self._runtime.run([self._output], {self._input: self._values(features)})
        if result.shape != found.shape:
            raise BadInput(f"the model returns shape {result.shape}; accepted is {found.shape}")
        with np.errstate(over="ignore"):
            found[...] = result

    def _values(self, features: Array) -> Array:
        """The features as the model takes them."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.ascontiguousarray(features, dtype=self._dtype)


def valid(found: Array) -> Array:
    """Rows that are probabilities as they are, the others uniform: a function of each row alone."""
    with np.errstate(over="ignore", invalid="ignore"):
        totals = found.sum(axis=1, dtype=np.float64)
        # NaN compares false.
        valid = (np.abs(totals - 1) <= TOLERANCE) & (found.min(axis=1) >= 0)
    return found if valid.all() else np.where(valid[:, None], found, np.float32(1 / found.shape[1]))


def _checked(data: bytes) -> bytes:
    """The model written anew, after each part of it was found acceptable; what was not looked at is
    gone."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise BadInput(
            "models need the packages onnx and onnxruntime; install confide[client]"
        ) from None
    if data[4:8] == b"ORTM":
        raise BadInput("it is in onnxruntime's own format; accepted is ONNX")
    try:
        model: Any = onnx.ModelProto.FromString(data)
        model.DiscardUnknownFields()
        if not model.graph.output:
            raise BadInput(
                "it is no ONNX model, or one without outputs; accepted is ONNX with all weights "
                "inside"
            )
        for message in _parts(model):
            _check(message, onnx)
            for name in COMMENTS:
                if name in message.DESCRIPTOR.fields_by_name:
                    message.ClearField(name)
        return model.SerializeToString()
    except BadInput:
        raise
    except (
        Exception
    ) as error:  # the reader of protobuf raises errors of several kinds, some of them undocumented
        raise BadInput(
            f"it cannot be read as ONNX ({type(error).__name__}); accepted is ONNX with all "
            "weights inside"
        ) from None


def _parts(root: Any) -> Iterator[Any]:
    """Every message inside a message, wherever it is: graphs inside nodes, tensors inside
    attributes, and so on."""
    from google.protobuf.message import Message

    waiting = [root]
    while waiting:
        message = waiting.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if isinstance(value, Message) else value)


def _check(message: Any, onnx: Any) -> None:
    if isinstance(message, onnx.ModelProto) and (message.functions or message.training_info):
        raise BadInput(
            "it has functions or training steps of its own; accepted is a graph of standard "
            "operators (inline them)"
        )
    if isinstance(message, onnx.OperatorSetIdProto) and message.domain not in OPERATORS:
        raise BadInput(
            f"it uses operators of {message.domain!r}; accepted are those of ONNX and ai.onnx.ml"
        )
    if isinstance(message, onnx.TensorProto) and (message.data_location or message.external_data):
        raise BadInput(
            f"tensor {message.name!r} is kept outside the file; accepted is ONNX with all weights "
            "inside"
        )
    if isinstance(message, onnx.NodeProto):
        if message.op_type not in OPERATORS.get(message.domain, ()):
            full = f"{message.domain}.{message.op_type}".lstrip(".")
            raise BadInput(
                f"it uses the operator {full}; accepted are standard ones whose result its inputs "
                "determine"
            )
        if _trains(message):
            raise BadInput(
                f"it has a {message.op_type} in training mode; accepted are models exported for "
                "inference"
            )


def _trains(node: Any) -> bool:
    """Dropout then draws random numbers; normalisation updates running means, which onnxruntime
    keeps for the next call."""
    if node.op_type == "Dropout":
        return any(node.input[2:])
    if node.op_type == "BatchNormalization":
        return any(node.output[1:]) or any(
            a.name == "training_mode" and a.i != 0 for a in node.attribute
        )
    return False


def _load(checked: bytes) -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise BadInput(
            "models need the packages onnx and onnxruntime; install confide[client]"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # Buffers and plans of memory that one call leaves for the next.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    # Quiet: what onnxruntime writes about a failure may hold values.
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        # Without fallback: a call that fails must not make another session for the calls after it.
        return onnxruntime.InferenceSession(
            checked, options, providers=["CPUExecutionProvider"], enable_fallback=False
        )
    except Exception as error:  # its errors share no class
        raise BadInput(f"onnxruntime cannot load it: {type(error).__name__}") from None
