"""A proxy between owners and an aggregator that records every byte, and a search in what it saw."""

import socket
import threading
from typing import Self

import numpy as np
import onnx

# As many bytes of a model as four of its weights: nothing else repeats them by chance.
WINDOW = 16


class Recorder:
    """A TCP proxy on the loopback interface; `to_server` and `to_owners` hold what passed."""

    def __init__(self, port: int) -> None:
        self._server, self.to_server, self.to_owners = port, bytearray(), bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                owner, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server))
            for source, sink, kept in (
                (owner, server, self.to_server),
                (server, owner, self.to_owners),
            ):
                given = (source, sink, kept)
                threading.Thread(target=self._pass_on, args=given, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
        try:
            while data := source.recv(1 << 16):
                kept += data
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()


def shows(model: bytes, seen: bytes) -> bool:
    """Return whether four weights in a row, or a piece of the file, stand in what was seen."""
    parts = [
        onnx.numpy_helper.to_array(one) for one in onnx.load_from_string(model).graph.initializer
    ]
    weights = [part.tobytes() for part in parts if part.dtype == np.float32 and part.size > 4]
    assert weights
    return any(
        data[start : start + WINDOW] in seen
        for data in (model, *weights)
        for start in range(0, len(data) - WINDOW, WINDOW)
    )
