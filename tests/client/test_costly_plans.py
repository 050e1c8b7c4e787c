"""What plans of a hostile aggregator cost an owner in time and memory, against the real command."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.client.explain import explain
from confide.client.home import Home
from confide.client.owner import kept_owner
from confide.client.training.computing import Computing
from confide.client.training.local_round import Trainer
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.registry import LABEL_CHANNELS
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.methods.monitor import MOST_PERIODS, MonitorTerms
from confide.protocol.methods.training.network_terms import described
from confide.protocol.plan import Plan, open_plan, sign_plan
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.graphs import first_feature, written
from tests.support.networks.stacks import layered
from tests.support.owners.boundary import (
    HALF,
    LABELS,
    LEARNS,
    PLAN,
    ROUND,
    STEPS,
    TRAINING,
    N,
    crowd,
    home,
    people,
)
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import KEY, changed

SLOWEST: dict[str, Plan] = {
    "training": changed(TRAINING, rounds=10_000, local_steps=100, sampling_rate=1e-6),
    "a wide training": replace(TRAINING, terms=replace(STEPS, **layered(100_000, 2))),
    "counts": replace(
        PLAN,
        terms=CentralTerms(
            variant="owner-noised",
            mechanism="gaussian-search",
            epsilon=1.0,
            privacy_delta=1e-100,
            bins=1 << 20,
            beta=0.01,
            noise_variance=1 << 40,
        ),
    ),
    "counts of training records": replace(
        PLAN,
        training=bytes(32),
        terms=FullDataTerms(
            variant="scp-f-owner-noised",
            mechanism="gaussian-search",
            epsilon=1.0,
            privacy_delta=1e-100,
            bins=1 << 20,
            beta=0.01,
            noise_variance=1 << 40,
            training_noise=50.0,
            training_rate=1e-6,
            training_steps=1_000_000,
            training_delta=1e-6,
        ),
    ),
    "a watch": replace(
        PLAN,
        terms=MonitorTerms(
            variant="e-process",
            epsilon=1.0,
            delta=0.1,
            threshold=0.5,
            card=bytes(32),
            periods=MOST_PERIODS,
        ),
    ),
    **{
        channel: replace(PLAN, labels=1 << 15, terms=replace(LABELS, channel=channel, epsilon=1e-3))
        for channel in LABEL_CHANNELS
    },
}


@pytest.mark.parametrize("plan", SLOWEST.values(), ids=SLOWEST)
def test_every_method_is_checked_within_a_second(plan: Plan, tmp_path: Path) -> None:
    """11. The most that a plan of each kind may ask: read, judged and explained in a second of
    processor time."""
    policy, signed = Home(home(tmp_path, **LEARNS)).policy(), sign_plan(plan, KEY)
    before = time.process_time()
    opened, _ = open_plan(signed, trusted=policy.aggregators, now=datetime.now(UTC))
    explain(opened, policy)
    assert time.process_time() - before < 1


def test_a_network_of_torch_is_tried_in_seconds() -> None:
    """11. What is read is decided within a second; then a network is tried on made-up rows, which
    takes no lock (here 30 seconds of processor time at most)."""
    named = described("cnn image=1,16,16 channels=16,32", features=256, outputs=10)
    before = time.process_time()
    Trainer(replace(STEPS, **named), computing=Computing(device="cpu"))
    assert time.process_time() - before < 30


MANY = replace(PLAN, labels=(1 << 15) - 1)
TOO_LARGE: dict[str, tuple[Plan, int]] = {
    "features in clear": (replace(MANY, terms=replace(LABELS, sent_features=2)), 40_000),
    "bits": (MANY, 40_000),
    "probabilities in clear": (replace(MANY, terms=LABELS), 5_000),
}


@pytest.mark.parametrize(("plan", "count"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_no_plan_takes_all_memory(plan: Plan, count: int, tmp_path: Path) -> None:
    """11. A plan names as many labels as it likes, and a model may leave open how many results it
    has: gigabytes for every few thousand records. Nothing is scored, drawn or spent."""
    path, name = written(tmp_path, first_feature())
    leaves = {"features_may_leave": "true", "probabilities_may_leave": "true"}
    place = home(tmp_path, name, methods='["bits", "labels"]', **leaves)
    plan = changed(plan, model=name)
    query = (
        HALF
        if plan.method == "bits"
        else plan.terms.read_query(
            wire.LabelQuery(stop=1.0).SerializeToString(), labels=plan.labels
        )
    )
    with Puppet(plan, query) as puppet:
        puppet.ask(place, people(tmp_path / "records.npz", np.zeros((count, 2))), "--model", path)
    assert puppet.codes == ["TOO_LARGE"]
    assert Home(place).ledger().spent_by_record() == (0, 0.0)
    assert not list(Home(place).scores_folder.glob("*"))


@pytest.mark.parametrize("channel", LABEL_CHANNELS)
def test_the_most_labels_are_drawn_in_milliseconds(channel: str) -> None:
    """11. Subsets of 32,768 labels took a tenth of a second of processor time a record."""
    drawn = LABEL_CHANNELS[channel](k=1 << 15, epsilon=1.0)
    before = time.process_time()
    drawn.randomize(np.zeros(256, dtype=np.int64), os_entropy)
    assert time.process_time() - before < 5


def test_nobody_waits_for_an_answer_that_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """11. While one process draws the steps of a training, the owner's command answers another
    campaign from the same ledger."""
    path, name = written(tmp_path, first_feature())
    allowed = LEARNS | {"methods": '["bits", "training"]'}
    place, records = home(tmp_path, name, **allowed), people(tmp_path / "records.npz", crowd(0.9))
    drawing, done, steps = threading.Event(), threading.Event(), Trainer.learn

    def learn(self: Trainer, *given: Any, **more: Any) -> Any:
        drawing.set()
        assert done.wait(60)
        return steps(self, *given, **more)

    monkeypatch.setattr(Trainer, "learn", learn)

    def train(puppet: Puppet) -> bytes:
        return kept_owner(Home(place), records, None).answer(puppet.signed, puppet.query)

    plan = changed(PLAN, model=name, epsilon=4.0, campaign="bits")
    with (
        Puppet(TRAINING, ROUND) as slow,
        Puppet(plan, replace(HALF, channel=Bit(epsilon=4.0))) as quick,
        ThreadPoolExecutor(1) as pool,
    ):
        trained = pool.submit(train, slow)
        assert drawing.wait(60)
        assert quick.ask(place, records, "--model", path) == 0
        assert not trained.done()
        done.set()
        assert wire.Answer.FromString(trained.result(60)).code == wire.Code.OK
    assert Home(place).ledger().spent_by_record() == (N, 8.0)
