"""Simulated owners with shares of the embedded data set, or of a file of one's own.

Their policy trusts the simulation's key and no other.
"""

import os
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.ids import normal_id
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy
from confide.protocol.methods.labels.in_clear import AGGREGATOR
from confide.protocol.methods.registry import METHODS
from confide.protocol.models.model_file import Model
from confide.protocol.simulated.embedded import embedded_model
from confide.protocol.simulated.records import SimulatedData, dealt, simulated_data
from confide.protocol.simulated.settings import (
    EMBEDDED_MODEL,
    RESULTS_IN_FILE,
    RUN_FOLDER,
    SIMULATION_PUBLIC,
)

SIMULATION_POLICY = Policy(
    epsilon_per_record=40.0,
    epsilon_per_campaign=40.0,
    methods=frozenset(METHODS),
    probabilities_may_leave=True,
    features_may_leave=True,
    minimum_group=1,
    aggregators=frozenset({SIMULATION_PUBLIC}),
    models=frozenset({EMBEDDED_MODEL, RESULTS_IN_FILE}),
    delta_per_record=1e-2,
    delta_per_campaign=1e-3,
    exact_counts_may_leave=True,
    trained_models=True,
)

# Owners that a process keeps open: each takes a file and about 200 KB.
MOST_KEPT = 1_000


class QueryStreams:
    """The random words of a seeded owner, a stream for each query.

    A query may find its owner in any process, so the stream of a query depends on nothing that was
    asked before, and no two queries share random words.
    """

    def __init__(self, seed: int, owner: int) -> None:
        self._name = seed, owner
        self._stream: Entropy = SeededEntropy("owner", seed, owner)

    def begin(self, query: bytes) -> None:
        """Start the stream of a query."""
        self._stream = SeededEntropy("owner", *self._name, query.hex())

    def __call__(self, size: int) -> bytes:
        return self._stream(size)


def simulated_owner(
    *,
    run: int,
    owner: int,
    owners: int,
    config: Mapping[str, Any],
    query: bytes,
    model: bytes | None = None,
) -> Respondent:
    """Return an owner with its share of the records and a ledger in the folder of the run.

    Its records have the results of a model that came with them, unless a model came with the query,
    or the run configuration names one, which then scores them. A process keeps the owners that it
    made for a run, with their names, scores and ledgers, because any node's next query may reach
    it.
    """
    folder = Path(os.environ.get(RUN_FOLDER, tempfile.gettempdir())) / f"confide-run-{run}"
    key = folder, owner, owners, tuple(sorted(config.items())), model
    found = _kept.owners.pop(key, None)
    if found is None:
        while len(_kept.owners) >= MOST_KEPT:
            _kept.owners.popitem(last=False)[1].ledger.close()
        found = open_simulated(folder, owner=owner, owners=owners, config=config, model=model)
    _kept.owners[key] = found
    found.begin(query)
    return found.respondent


@dataclass(frozen=True)
class SimulatedOwner:
    """An open owner, its ledger, and its random words if they are seeded."""

    respondent: Respondent
    ledger: Ledger
    streams: QueryStreams | None

    def begin(self, query: bytes) -> None:
        """Start the random words of a query."""
        if self.streams is not None:
            self.streams.begin(query)

    def answer(self, signed_plan: bytes, query: bytes) -> bytes:
        """Answer a query with its own random words."""
        self.begin(query)
        return self.respondent.answer(signed_plan, query)


class _SimulatedOfThread(threading.local):
    """The owners kept for one thread, the last used at the end.

    Each thread has its own, because an SQLite connection belongs to the thread that made it.
    """

    def __init__(self) -> None:
        self.owners: OrderedDict[Any, SimulatedOwner] = OrderedDict()


_kept = _SimulatedOfThread()


def open_simulated(
    folder: Path, *, owner: int, owners: int, config: Mapping[str, Any], model: bytes | None = None
) -> SimulatedOwner:
    """Open an owner with its share of the records, and its ledger in this folder."""
    data, seed = simulated_data(config), int(config["seed"])
    mine = dealt(config, owners=owners).shares[owner]
    scorer = _model(str(config["model-file"])) if model is None else Model.of(model)
    folder.mkdir(exist_ok=True)
    streams = None if seed < 0 else QueryStreams(seed, owner)
    given = scorer is None and data.results is not None
    records = Records(
        _names(data, mine),
        _own_results(data, mine) if given else None,
        data.truth[mine],
        None,
        None if data.features is None else data.features[mine],
        None if data.persons is None else tuple(map(normal_id, data.persons[mine].tolist())),
        data.columns if given else (),
        {name: values[mine] for name, values in data.public.items()},
    )
    named = {_secret_digest()} if config["scoring"] == AGGREGATOR and not config["data"] else set()
    if scorer is not None:
        named.add(scorer.digest)
    models = SIMULATION_POLICY.models | named
    policy = replace(SIMULATION_POLICY, models=models, columns_may_leave=frozenset(data.public))
    ledger = Ledger(folder / f"{owner}.sqlite", synced=False)
    respondent = Respondent(
        records=records,
        model=scorer,
        cache=None if scorer is None else folder / f"{owner}-scores",
        policy=lambda: policy,
        ledger=ledger,
        secret=owner.to_bytes(32, "little"),
        entropy=os_entropy if streams is None else streams,
        now=lambda: datetime.now(UTC),
    )
    return SimulatedOwner(respondent, ledger, streams)


def _names(data: SimulatedData, mine: NDArray[Any]) -> tuple[bytes, ...]:
    """Return the ids of records; made up if the file has none. A record may be drawn repeatedly."""
    if data.ids is None:
        return tuple(f"{i}/{place}".encode() for i, place in enumerate(mine.tolist()))
    ids = [normal_id(value) for value in data.ids[mine].tolist()]
    seen: Counter[bytes] = Counter()
    names = []
    for name in ids:
        names.append(name if not seen[name] else b"%b/%d" % (name, seen[name]))
        seen[name] += 1
    return tuple(names)


def _own_results(data: SimulatedData, mine: NDArray[Any]) -> NDArray[Any]:
    """Return results that came with records; probabilities in the precision of owners."""
    assert data.results is not None
    found: NDArray[Any] = data.results[mine]
    return found if data.columns else found.astype(np.float32, copy=False)


@cache
def _model(path: str) -> Model | None:
    return Model.read(Path(path)) if path else None


@cache
def _secret_digest() -> bytes:
    """The embedded model as a file: what the plans of an aggregator that scores name."""
    return Model.of(embedded_model()).digest
