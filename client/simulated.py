"""Simulated owners with shares of the embedded data set.

Their policy trusts the simulation's key and no other.
"""

import os
import tempfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.protocol.embedded import deal, owned, predictions
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy
from confide.protocol.methods.registry import METHODS
from confide.protocol.models.model_file import Model
from confide.protocol.simulated import EMBEDDED_MODEL, RUN_FOLDER, SIMULATION_PUBLIC

SIMULATION_POLICY = Policy(
    epsilon_per_record=40.0,
    epsilon_per_campaign=40.0,
    methods=frozenset(METHODS),
    probabilities_may_leave=True,
    features_may_leave=True,
    minimum_group=1,
    aggregators=frozenset({SIMULATION_PUBLIC}),
    models=frozenset({EMBEDDED_MODEL}),
    delta_per_record=1e-2,
    delta_per_campaign=1e-3,
    exact_counts_may_leave=True,
    trained_models=True,
)


@cache
def _dealt(
    *, owners: int, records: int, sizes: str, concentration: float, replacement: bool, seed: int
) -> list[NDArray[Any]]:
    """Return every owner's share, dealt once per process."""
    _, labels = predictions()
    shares, _ = deal(
        labels,
        owners=owners,
        records=records,
        sizes=sizes,
        concentration=concentration,
        replacement=replacement,
        seed=max(seed, 0),
    )
    return shares


def stays_away(*, owner: int, owners: int, dropout: float, seed: int) -> bool:
    """Whether a simulated owner never answers; all answer unless a dropout rate is set."""
    return bool(np.random.default_rng(max(seed, 0)).random(owners)[owner] < dropout)


def simulated_owner(
    *,
    run: int,
    owner: int,
    owners: int,
    records: int,
    sizes: str,
    concentration: float,
    replacement: bool,
    seed: int,
    query: bytes,
    model: bytes | None = None,
) -> Respondent:
    """Make an owner with a share of the embedded records and a ledger in the folder of the run.

    Its records have the embedded model's probabilities, unless another model came with the query,
    which then scores them. A node is made anew for every query, so the name of a seeded stream
    includes the query: no two queries share random words.
    """
    probs, labels = predictions()
    mine = _dealt(
        owners=owners,
        records=records,
        sizes=sizes,
        concentration=concentration,
        replacement=replacement,
        seed=seed,
    )[owner]
    folder = Path(os.environ.get(RUN_FOLDER, tempfile.gettempdir())) / f"confide-run-{run}"
    folder.mkdir(exist_ok=True)
    entropy: Entropy = os_entropy if seed < 0 else SeededEntropy("owner", seed, owner, query.hex())
    names = tuple(f"{i}/{place}".encode() for i, place in enumerate(mine.tolist()))
    scored = probs[mine].astype(np.float32) if model is None else None
    embedded = EMBEDDED_MODEL if model is None else None
    return Respondent(
        records=Records(names, scored, labels[mine], embedded, owned()[0][mine]),
        model=None if model is None else Model.of(model),
        cache=None if model is None else folder / f"{owner}-scores",
        policy=lambda: SIMULATION_POLICY,
        ledger=Ledger(folder / f"{owner}.sqlite"),
        secret=owner.to_bytes(32, "little"),
        entropy=entropy,
        now=lambda: datetime.now(UTC),
    )
