"""A data owner's machine, attacked by a hostile aggregator through the owner's real command."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from confide.client.home import Home
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.privacy.renyi import training_noise
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.stacks import first_weights, layered
from tests.support.owners.owners import PUBLIC
from tests.support.servers.servers import plan_now

N, SURE = 200, 20.0
PLAN = plan_now(labels=2, epsilon=SURE)
HALF = BitQuery(Bit(epsilon=SURE), 0.0, 1.0, (0.5,))
LABELS = LabelTerms(variant="certified", channel="k-rr", epsilon=SURE, delta=0.1)


def home(folder: Path, *models: bytes, **changes: Any) -> Path:
    """Make an owner's folder with a policy that trusts the tests' key and has these changes."""
    place = Home(folder / "home")
    place.create()
    clauses = {
        "aggregators": f'["{PUBLIC.hex()}"]',
        "models": str([model.hex() for model in models]).replace("'", '"'),
        "epsilon_per_record": "20.0",
        "epsilon_per_campaign": "20.0",
    } | changes
    text = place.policy_file.read_text()
    for name, value in clauses.items():
        text, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1
    place.policy_file.write_text(text)
    return place.folder


def people(path: Path, features: Any, labels: Any = None) -> Path:
    """Write a file of records with ids."""
    labels = np.zeros(len(features), dtype=np.int64) if labels is None else labels
    np.savez(
        path,
        ids=np.arange(len(features)),
        labels=labels,
        features=np.asarray(features, dtype=np.float64),
    )
    return path


def crowd(first: float) -> Any:
    """Features of the target, whose first feature is secret, and of others that all have 0.4."""
    features = np.full((N, 2), 0.4)
    features[0, 0] = first
    return features


STEPS = TrainingTerms(
    epsilon=4.0,
    privacy_delta=1e-6,
    **layered(2, 2),
    noise_multiplier=training_noise(epsilon=4.0, delta=1e-6, sampling_rate=0.5, steps=4),
    sampling_rate=0.5,
    rounds=2,
    local_steps=2,
    clip=1.0,
    batch=100.0,
    learning_rate=1.0,
)
TRAINING = replace(PLAN, terms=STEPS)
ROUND = TrainingQuery(STEPS, first_weights(STEPS))
LEARNS = {"methods": '["training"]', "delta_per_record": "1e-5", "delta_per_campaign": "1e-5"}


def weights_of(answer: wire.Answer) -> bytes:
    return wire.Weights.FromString(answer.batch.body).weights
