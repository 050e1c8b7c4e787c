"""What a run over Flower that trains keeps in its output folder until it has ended.

A run that was killed goes on when it is started again with the same settings. It makes the same
plans, so that owners repeat the answers that their ledgers hold and nothing is charged twice, and
it takes the rounds that were counted, and the trained model, from here.
"""

import fcntl
import json
import logging
import os
import shutil
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from confide.aggregator.campaigns.admission import Admission
from confide.aggregator.campaigns.driver import Tallies
from confide.aggregator.campaigns.planning.run_plans import DAYS, trains
from confide.protocol.errors import BadInput
from confide.protocol.files import make_folder, write_whole
from confide.protocol.methods.base import Query, Tally
from confide.protocol.plan import Plan, digest, query_digest, write_query

log = logging.getLogger("flwr")

NAME = "unfinished"
# Settings that may differ when a run goes on.
FREE = ("listed", "timeout")


@dataclass(frozen=True)
class Beginning:
    """What the plans of a run depend on besides its settings."""

    run: int
    owners: int
    began: datetime


class UnfinishedRun:
    """The folder of a run that has not ended."""

    def __init__(self, output: Path, settings: Mapping[str, Any], fresh: Beginning) -> None:
        """Continue the run that these settings began, or start `fresh`."""
        self._folder = output / NAME
        self._settings = {name: value for name, value in settings.items() if name not in FREE}
        self._file = self._folder / "run.json"
        self._model = self._folder / "model.onnx"
        self.resumed = self._file.is_file()
        self.beginning = self._read(fresh) if self.resumed else fresh

    def _read(self, fresh: Beginning) -> Beginning:
        try:
            found = json.loads(self._file.read_text())
            settings = dict(found["settings"])
            began = datetime.fromisoformat(found["began"])
            beginning = Beginning(int(found["run"]), int(found["owners"]), began)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise self._refused(f"cannot be read: {error}") from None
        names = sorted(settings.keys() | self._settings.keys())
        other = [name for name in names if settings.get(name) != self._settings.get(name)]
        if other:
            raise self._refused(f"is of a run with other settings: {', '.join(other)}")
        if fresh.began >= began + timedelta(days=DAYS):
            raise self._refused(f"is of a run that began {began}, whose plans have expired")
        return beginning

    def _refused(self, why: str) -> BadInput:
        return BadInput(
            f"{self._folder} {why}; accepted are the settings that it began with, another output, "
            "or this one without that folder, for a training that owners are charged for afresh"
        )

    def begin(self, plan: Plan) -> "KeptRounds":
        """Keep what plans depend on, before an owner is asked; return the rounds of a training."""
        if not self._file.is_file():
            make_folder(self._folder)
            values = {
                "settings": self._settings,
                "run": self.beginning.run,
                "owners": self.beginning.owners,
                "began": self.beginning.began.isoformat(),
            }
            write_whole(self._file, json.dumps(values, indent=2) + "\n")
        return KeptRounds(self._folder / digest(plan.to_bytes()).hex(), plan)

    def model(self) -> bytes | None:
        """The trained model, if the training has ended."""
        return self._model.read_bytes() if self._model.is_file() else None

    def keep_model(self, model: bytes) -> None:
        """Keep the trained model: exported again, that of a factory might have other bytes."""
        write_whole(self._model, model)

    def end(self) -> None:
        """Forget the run: the next one with the same settings makes its own plans."""
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def unfinished_run(
    output: Path | None, config: Mapping[str, Any], fresh: Beginning
) -> Iterator[UnfinishedRun | None]:
    """Open the folder of a run that trains, for one process at a time.

    A simulation, or a run without output, has none.
    """
    names = str(config["campaigns"]).split()
    if output is None or not config["key-file"] or not any(map(trains, names)):
        yield None
        return
    handle = os.open(output, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BadInput(
                f"output is {output}, which another run is using; accepted is to wait for its end, "
                "or another folder"
            ) from None
        found = UnfinishedRun(output, config, fresh)
        if found.resumed:
            log.info("confide: going on with the run that began %s", found.beginning.began)
        yield found
    finally:
        os.close(handle)


class KeptRounds:
    """The rounds of a training that are counted, each on disk before the next one is asked."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder, self._plan = folder, digest(plan.to_bytes())

    def before(self, tallies: Tallies, admission: Admission) -> Tallies:
        """Make a source of tallies that asks `tallies` for the rounds that are not here.

        Those it keeps, with what `admission` has counted of them, which it gets back with a round.
        """

        def tally(query: Query, round_: int) -> Tally:
            asked = query_digest(write_query(query, plan=self._plan, round_=round_)).hex()
            file = self._folder / f"{round_:05}"
            if file.is_file():
                return _read_round(file, query, asked=asked, admission=admission)
            codes, counted = admission.codes.copy(), admission.counted.copy()
            found = tallies(query, round_)
            head = {
                "query": asked,
                "received": admission.codes - codes,
                "counted": {key.hex(): n for key, n in (admission.counted - counted).items()},
            }
            make_folder(self._folder)
            write_whole(file, json.dumps(head).encode() + b"\n" + (found.to_bytes() or b""))
            return found

        return tally


def _read_round(file: Path, query: Query, *, asked: str, admission: Admission) -> Tally:
    """Read a round, if it answered this query: its tally, and what was counted."""
    try:
        text, _, data = file.read_bytes().partition(b"\n")
        head = json.loads(text)
        if head["query"] != asked:
            raise BadInput(f"{file} is of another query; accepted is another output")
        tally: Tally = query.tally_from_bytes(data)
        admission.codes.update(Counter(head["received"]))
        admission.counted.update({bytes.fromhex(key): n for key, n in head["counted"].items()})
    except (OSError, ValueError, TypeError, KeyError, struct.error) as error:
        raise BadInput(f"{file} cannot be read: {error}; accepted is another output") from None
    return tally
