"""Trainings for tests: plans, seeded owners with features, and trainings whose sides are killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import run_training
from confide.aggregator.procedures.averaging import Learned
from confide.client.ledger.ledger import Ledger
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.client.transport.contribution import Contribution
from confide.client.transport.grpc_client import Access
from confide.protocol.methods.base import Batch
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan, digest
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES, VERSION, serialise
from confide.protocol.wire.packing import write_batch
from tests.support.networks.stacks import first_weights
from tests.support.owners.owners import PLAN, POLICY, asking, owner, signed
from tests.support.repository.places import ROOT
from tests.support.servers.servers import contribution, plan_now

LEARNS = replace(
    POLICY, methods=frozenset({"training"}), delta_per_record=1e-5, delta_per_campaign=1e-5
)
RECORDS = 200
# The settings of a training of 15 weights, as an operator writes them.
SETTINGS: dict[str, Any] = {
    "epsilon": 4.0,
    "privacy-delta": 1e-5,
    "architecture": "linear",
    "features": 4,
    "labels": 3,
    "rounds": 4,
    "local-steps": 2,
    "sampling-rate": 0.2,
    "clip": 1.0,
    "batch": 40.0,
    "learning-rate": 4.0,
    "momentum": 0.5,
    "averaged-rounds": 2,
    "centre": 0.5,
}
# Of 307,200 weights, whose queries and answers are longer than a message.
LONG: dict[str, Any] = {"features": 1023, "labels": 300, "rounds": 2, "local-steps": 1}
# As many in a network whose gradients come from torch.
LONG_CNN: dict[str, Any] = LONG | {
    "architecture": "cnn image=1,32,32 channels=16",
    "features": 1024,
    "labels": 75,
}
# One owner as a separate process.
CLIENT = """
import sys
from pathlib import Path
from confide.client.transport.grpc_client import Access
from confide.protocol.plan import Plan
from tests.support.training.federated_trainings import learning
address, token, ca, plan, folder, seed = sys.argv[1:]
access = Access(address, token, Path(ca).read_bytes())
learning(access, Plan.from_bytes(bytes.fromhex(plan)), Path(folder), seed=int(seed)).watch()
"""


def training_plan(**settings: Any) -> Plan:
    """Return a plan of training that is valid today, with these settings."""
    values = SETTINGS | settings
    terms = TrainingTerms.from_settings("federated-averaging", values)
    return plan_now(replace(PLAN, labels=int(values["labels"]), terms=terms))


def terms_of(plan: Plan) -> TrainingTerms:
    """Return the terms of a plan of training."""
    assert isinstance(plan.terms, TrainingTerms)
    return plan.terms


def people(plan: Plan, seed: int) -> Records:
    """Return records whose label is the place of their highest feature."""
    rng = np.random.default_rng(seed)
    width, labels = terms_of(plan).features or 0, rng.integers(plan.labels, size=RECORDS)
    features = rng.random((RECORDS, width)) * 0.5
    features[np.arange(RECORDS), labels % width] += 0.5
    names = tuple(f"{seed}/{i}".encode() for i in range(RECORDS))
    return Records(names, None, labels, None, features)


def learner(plan: Plan, folder: Path, *, seed: int) -> Respondent:
    """Return an owner whose answers depend on its seed and the query only."""
    folder.mkdir(parents=True, exist_ok=True)
    held = people(plan, seed)
    return owner(folder, seed=seed, policy=LEARNS, now=lambda: datetime.now(UTC), held=held)


def learning(access: Access, plan: Plan, folder: Path, *, seed: int) -> Contribution:
    """Return such an owner behind the native client."""
    respondent = learner(plan, folder, seed=seed)
    return contribution(
        access, plan, folder, seed=seed, n=RECORDS, patience=300, respondent=respondent
    )


def in_process(plan: Plan, folder: Path, *, owners: int) -> tuple[Learned, dict[str, int]]:
    """Run a training of seeded owners in this process."""
    everyone = [learner(plan, folder / str(seed), seed=seed) for seed in range(owners)]
    return run_training(plan, asking(signed(plan), everyone))


@contextmanager
def separate(
    access: Access, plan: Plan, folder: Path, *, seed: int, ca: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run an owner in a process of its own, which ends with the block."""
    given = [access.address, access.token, str(ca), plan.to_bytes().hex(), str(folder), str(seed)]
    process = subprocess.Popen([sys.executable, "-c", CLIENT, *given], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def spent(folder: Path) -> tuple[int, float]:
    """Return how many records of an owner have spent something, and the most of one."""
    ledger = Ledger(folder / "ledger.sqlite")
    found = ledger.spent_by_record()
    ledger.close()
    return found


def weights_answer(
    plan: Plan, weights: NDArray[Any], *, round_: int = 0, ids: bytes = bytes(ID_BYTES)
) -> bytes:
    """Return an answer with these weights, whatever they are."""
    query = TrainingQuery(terms_of(plan), first_weights(terms_of(plan)))
    named = np.frombuffer(ids, dtype=np.uint8).reshape(-1, ID_BYTES)
    batch = write_batch(
        Batch(named, {"weights": weights}, seeded=True),
        query=query,
        plan=digest(plan.to_bytes()),
        round_=round_,
    )
    return serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=batch))
