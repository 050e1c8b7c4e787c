"""Models run in a process of their own, which may die on any record without others noticing.

An operator of onnxruntime that divides the smallest integer by -1, or meets an empty axis, ends the
process; so does a record for which a model takes too much memory or time. If that were the client's
own process, a model's author would learn, without noise, that some record has a property of their
choice. So a scorer process reads model and records, and forks. The fork scores the records one by
one. If it dies, the record it was at has no result, and another fork continues with the next
record.

Opening a model has the same limits: onnxruntime computes whatever does not depend on the input, so
a graph of a few bytes could take days.
"""

import json
import mmap
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput
from confide.protocol.models.model_file import Model
from confide.protocol.models.results import PROBABILITIES, RESULT_KINDS, ResultKind
from confide.protocol.models.session import Session

Array = NDArray[Any]
Progress = Callable[[int, int], None]

# Records that one fork scores.
STEP = 4096
# Processor time that a call, or opening a model, may take; a process that takes longer ends. Other
# jobs on the machine do not count.
CALL_SECONDS = 60.0
# Memory that they may take beyond the memory of model and records.
MOST_BYTES = 4 << 30


def check_model(model: Model, name: str) -> None:
    """Refuse a model that cannot be run, with an error that names it."""
    try:
        score(model, None, labels=2)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None


def score(
    model: Model,
    features: Array | None,
    *,
    labels: int,
    vetted: bool = False,
    kind: ResultKind = PROBABILITIES,
    progress: Progress | None = None,
    flat: bool = False,
) -> Array:
    """(n, labels) results of the model, computed by a scorer process.

    Without features it is only tried whether the model can be opened. Features that are `flat` get
    the shape that the model declares.
    """
    given = np.empty((0,)) if features is None else np.ascontiguousarray(features)
    header = {
        "model": len(model.data),
        "shape": given.shape,
        "dtype": given.dtype.str,
        "labels": labels,
        "vetted": vetted,
        "kind": kind.name,
        "scores": features is not None,
        "flat": flat,
        "seconds": CALL_SECONDS,
    }
    rows = np.empty((len(given), labels), dtype=np.float32)
    with _scorer() as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            for part in (json.dumps(header).encode() + b"\n", model.data, given.tobytes()):
                process.stdin.write(part)
            process.stdin.close()
        verdict = process.stdout.readline()
        _read_rows(process.stdout, rows, progress)
    if verdict != b"ok\n":
        ended = (
            "it ends the process that loads it; accepted is a model that onnxruntime loads within "
            f"{CALL_SECONDS:g} s and {MOST_BYTES >> 30} GB"
        )
        raise BadInput(verdict.decode().strip() or ended)
    if process.returncode:
        raise BadInput(
            f"scoring {len(rows)} records ended with code {process.returncode}; it may have lacked "
            "memory"
        )
    return rows


def _scorer() -> subprocess.Popen[bytes]:
    """Start a scorer process; onnxruntime's messages, which may hold values, are thrown away.

    Without -P it would import modules that lie in the folder the command was started in, where an
    aggregator's files may have been unpacked.
    """
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from confide.protocol.models.scorer import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


def _read_rows(source: IO[bytes], rows: Array, progress: Progress | None) -> None:
    """Read rows in steps, as far as they come."""
    for start in range(0, len(rows), STEP):
        chunk = rows[start : start + STEP]
        found = source.read(chunk.nbytes)
        if len(found) != chunk.nbytes:
            return
        chunk[...] = np.frombuffer(found, dtype=np.float32).reshape(chunk.shape)
        if progress is not None:
            progress(start + len(chunk), len(rows))


def main() -> None:
    """The scorer process: header, model and features in; a verdict and rows out."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    header = json.loads(source.readline())
    data = source.read(header["model"])
    features = np.frombuffer(source.read(), dtype=header["dtype"]).reshape(header["shape"])
    try:
        with _limited(header["seconds"]):
            session = Model.of(data).open()
        if header["flat"]:
            features = session.arrange(features)
        if header["scores"]:
            session.accept(features.shape[1:], header["labels"])
    except BadInput as error:
        sink.write(" ".join(str(error).split()).encode() + b"\n")
        return
    sink.write(b"ok\n")
    sink.flush()
    valid = RESULT_KINDS[header["kind"]].valid
    for rows in _chunks(session, features, labels=header["labels"], vetted=header["vetted"]):
        sink.write(valid(rows).tobytes())
        sink.flush()


def _chunks(session: Session, features: Array, *, labels: int, vetted: bool) -> Iterator[Array]:
    """Results of STEP records at a time, in memory that forks share; NaN where one is missing."""
    shared = mmap.mmap(-1, 8 + 4 * STEP * labels)
    at = np.frombuffer(shared, dtype=np.int64, count=1)
    found = np.frombuffer(shared, dtype=np.float32, offset=8).reshape(STEP, labels)

    def starting(i: int) -> None:
        at[0] = i
        signal.setitimer(signal.ITIMER_PROF, CALL_SECONDS)

    for start in range(0, len(features), STEP):
        part = features[start : start + STEP]
        rows = found[: len(part)]
        if not (vetted and _forked(partial(session.together, part, rows))):
            begin = 0
            rows[...] = np.nan
            while begin < len(part):
                at[0] = begin
                if _forked(partial(session.each, part, rows, begin=begin, starting=starting)):
                    break
                # The fork died on this record.
                rows[at[0]] = np.nan
                begin = int(at[0]) + 1
        yield rows


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Limit memory and processor time of this process within the block; beyond, it may end."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = used + MOST_BYTES if hard == resource.RLIM_INFINITY else min(used + MOST_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _forked(work: Callable[[], None]) -> bool:
    """Run something in a fork; whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            with _limited(CALL_SECONDS):
                work()
                os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
