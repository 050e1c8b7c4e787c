"""The thread that writes batches to disk.

Batches that wait when the disk is free are committed in one transaction and acknowledged together.

A batch is answered `OK` only after the transaction that holds it was committed. One that was stored
before is answered the same again and adds nothing.
"""

import logging
import queue
import threading
import time
from concurrent.futures import Future

from sqlalchemy import Engine

from confide.aggregator.process_status import ProcessStatus
from confide.aggregator.storage.database import tidy, writing
from confide.aggregator.storage.reports.deposit import store_all
from confide.aggregator.storage.reports.ids import StoredIds
from confide.aggregator.storage.reports.submissions import Rejection, Stored, Submission, summed
from confide.protocol.wire import wire_pb2 as wire

log = logging.getLogger(__name__)

# The most bytes of one transaction, so that its first item does not wait too long.
MOST_BYTES = 16 << 20
IDLE_SECONDS, FAILED_SECONDS = 0.5, 2.0

_Item = tuple[Submission | Rejection, "Future[Stored]"]


class Writer:
    """The one thread of a process that writes batches."""

    def __init__(self, engine: Engine, status: ProcessStatus) -> None:
        self._engine, self._status = writing(engine), status
        self._waiting: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._uncounted: list[Rejection] = []
        self._known = StoredIds()
        self._thread.start()

    def put(self, item: Submission | Rejection) -> "Future[Stored]":
        """Queue an item; the future gets the result once it is durable.

        If it cannot be stored the result is UNAVAILABLE.
        """
        done: Future[Stored] = Future()
        # A caller that is cancelled must not cancel the future: the item is written all the same.
        done.set_running_or_notify_cancel()
        self._waiting.put((item, done))
        return done

    def close(self) -> None:
        """Write all queued items, and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _next(self) -> _Item | None:
        """The next item; the database is tidied if none is queued for a while.

        After a failure, refusals that could not be counted are written again and again; once that
        succeeds the database can be written.
        """
        while True:
            well = self._status.writes and not self._uncounted
            try:
                return self._waiting.get(timeout=IDLE_SECONDS if well else FAILED_SECONDS)
            except queue.Empty:
                if well:
                    break
                again, self._uncounted = self._uncounted, []
                self._status.writes = self._write([(rejection, Future()) for rejection in again])
        tidy(self._engine)
        return self._waiting.get()

    def _run(self) -> None:
        while (first := self._next()) is not None:
            group, size, last = [first], _size(first), False
            while size < MOST_BYTES and not last:
                try:
                    item = self._waiting.get_nowait()
                except queue.Empty:
                    break
                last = item is None
                if item is not None:
                    group.append(item)
                    size += _size(item)
            stored = self._write(group)
            # A refusal is small: writing one does not show that a batch could be written.
            if not stored or any(isinstance(item, Submission) for item, _ in group):
                self._status.writes = stored
            if last:
                return

    def _write(self, group: list[_Item]) -> bool:
        """Commit a group and resolve its futures; True if the group is durable."""
        items, started = [item for item, _ in group], time.monotonic()
        try:
            with self._engine.begin() as db:
                answers = store_all(db, items, self._known)
        # Whatever failed, nothing was stored; the thread must go on to answer later callers.
        except Exception as error:
            reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            log.error(
                "not stored",
                extra={"error": type(error).__name__, "reason": reason, "items": len(group)},
            )
            stored, answers = False, [Stored(wire.Code.UNAVAILABLE)] * len(group)
            self._known.clear()
            self._uncounted = summed([*self._uncounted, *items])
            self._status.failures += 1
        else:
            stored = True
            self._status.committed(time.monotonic() - started)
        for (_, done), answer in zip(group, answers, strict=True):
            done.set_result(answer)
        return stored


def _size(item: _Item) -> int:
    return (
        sum(len(batch.answer) for batch in item[0].batches)
        if isinstance(item[0], Submission)
        else 0
    )
