"""Open a data owner for answering: its folder, its file of records and its model."""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confide.client.home import Home
from confide.client.ledger.ledger import Ledger
from confide.client.records.reader import read_records
from confide.client.respond import Respondent
from confide.client.training.computing import USUAL, Computing
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.models.model_file import Model

Stamp = tuple[int, ...] | None


def open_owner(
    home: Home,
    records: Path,
    model: Path | bytes | None,
    *,
    new_records: bool = False,
    computing: Computing = USUAL,
    route: bytes = b"",
) -> Respondent:
    """Read all files of an owner, and register the records in the ledger.

    A file whose records are mostly unknown to the ledger is refused, unless the caller says that
    they are new.
    """
    given: dict[str, Any] = {"new_records": new_records, "computing": computing, "route": route}
    return _open(home, records, model, ledger=home.ledger(), **given)


def kept_owner(
    home: Home, records: Path, model: Path | bytes | None, *, computing: Computing = USUAL
) -> Respondent:
    """Return the owner opened last on this thread, with its scores, if no source of it changed.

    Otherwise the owner is opened again: after a change of the records, the model or the secret,
    after the ledger's file was replaced, and after another process wrote to the ledger, which may
    have assigned records to persons. The policy is read for every answer in any case.

    It is for Flower, where nobody sends receipts: a training asks a round when the one before is
    stored (`confide.aggregator.campaigns.unfinished`), and that answer is not kept any longer.
    """
    source = _Source.of(home, records, model, computing=computing)
    last = _kept.owner
    if last is not None:
        if last.source == source and last.ledger.version() == last.version:
            return last.respondent
        _kept.owner = None
        last.ledger.close()
    ledger = home.ledger()
    # Read before anything else of the ledger, so that no write of another process is missed.
    version = ledger.version()
    given: dict[str, Any] = {"new_records": False, "computing": computing, "receipts": False}
    respondent = _open(home, records, model, ledger=ledger, **given)
    _kept.owner = _Kept(source, ledger, version, respondent)
    return respondent


def _open(
    home: Home,
    records: Path,
    model: Path | bytes | None,
    *,
    ledger: Ledger,
    new_records: bool,
    computing: Computing,
    route: bytes = b"",
    receipts: bool = True,
) -> Respondent:
    respondent = Respondent(
        records=read_records(records, public=home.policy().columns_may_leave),
        policy=home.policy,
        ledger=ledger,
        secret=home.secret(),
        entropy=os_entropy,
        now=lambda: datetime.now(UTC),
        model=_model(model),
        cache=home.scores_folder,
        computing=computing,
        route=route,
        receipts=receipts,
    )
    respondent.admit(new=new_records)
    return respondent


def _model(model: Path | bytes | None) -> Model | None:
    if model is None:
        return None
    return Model.of(model) if isinstance(model, bytes) else Model.read(model)


@dataclass(frozen=True)
class _Source:
    """The files that an owner is opened from, with stamps that change when a file changes."""

    home: Home
    records: Path
    model: Path | bytes | None
    computing: Computing
    stamps: tuple[Stamp, ...]

    @staticmethod
    def of(
        home: Home, records: Path, model: Path | bytes | None, *, computing: Computing
    ) -> "_Source":
        # The policy says which columns of the records are no features.
        files = [
            records,
            home.secret_file,
            home.policy_file,
            *([model] if isinstance(model, Path) else []),
        ]
        # Answers change the ledger's file, so only its device and inode are compared.
        ledger = _stamp(home.ledger_file)
        stamps = (ledger and ledger[:2], *map(_stamp, files))
        return _Source(home, records, model, computing, stamps)


def _stamp(path: Path) -> Stamp:
    """Return device, inode, size and times of a file; None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@dataclass(frozen=True)
class _Kept:
    source: _Source
    ledger: Ledger
    version: int
    respondent: Respondent


class _Thread(threading.local):
    """The owner kept for one thread.

    Each thread has its own, because an SQLite connection belongs to the thread that made it.
    """

    owner: _Kept | None = None


_kept = _Thread()
