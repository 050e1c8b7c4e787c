"""A model that scores records: an ONNX graph in one piece of bytes, named by their SHA-256.

A model comes from outside and runs on private records, so it is treated as hostile:
`confide.protocol.models.graph_check` refuses graphs that could reach beyond one record, and
`confide.protocol.models.session` runs the accepted graph on one record a call.

Not closed: how long a record takes. A model may also exploit a fault of onnxruntime itself;
`confide.protocol.models.scorer` runs models in another process, so that nobody notices one that
ends its process or takes too much memory or time.
"""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from confide.protocol.errors import BadInput
from confide.protocol.files import write_whole
from confide.protocol.models.graph_check import checked_graph
from confide.protocol.models.session import Session, load_runtime

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Model:
    """The bytes of a model and their SHA-256, by which plans and policies name it; not parsed."""

    data: bytes
    digest: bytes

    def __post_init__(self) -> None:
        if hashlib.sha256(self.data).digest() != self.digest:
            raise BadInput(
                f"a model is named {self.digest.hex()}; accepted is the SHA-256 of its bytes"
            )

    @staticmethod
    def of(data: bytes) -> "Model":
        """The model of these bytes, under their own digest."""
        return Model(data, hashlib.sha256(data).digest())

    @staticmethod
    def read(path: Path) -> "Model":
        """Read the file once: the bytes that are hashed here are those that run later."""
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

    def keep(self, folder: Path) -> None:
        """Keep the bytes in a folder, under their digest; that they cannot be is a warning only."""
        if Model.kept(folder, self.digest) is not None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(folder / f"{self.digest.hex()}.onnx", self.data, mode=0o600)
        except (OSError, BadInput) as error:
            log.warning("the model is not kept for a later campaign: %s", error)

    @staticmethod
    def kept(folder: Path, digest: bytes) -> "Model | None":
        """The model of this digest that a folder keeps; None if it is missing or damaged."""
        try:
            return Model((folder / f"{digest.hex()}.onnx").read_bytes(), digest)
        except (OSError, BadInput):
            return None

    def open(self, name: str = "model") -> "Session":
        """Check the graph and make it ready to run."""
        try:
            return Session(load_runtime(checked_graph(self.data)))
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None
        except UnicodeDecodeError:
            raise BadInput(
                f"{name}: it names an input or output by text that is not UTF-8"
            ) from None
