"""What leaves an owner, as bytes: one record moves it by no more than the noise is made for,
whichever network torch computes by whichever engine, at weights that an aggregator chooses."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.client.training.computing import Computing
from confide.client.training.engines import clipper
from confide.protocol.exact.lattice import CLIP_UNITS, sensitivity
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.network_terms import described
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan
from confide.protocol.privacy.renyi import training_noise
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.factories import installed, plan_of, vetted
from tests.support.training.learners import DELTA, LEARNS, TERMS, TRAINING, answer, people, rows

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
RECORDS, RATE, CLIP, LARGEST = 45, 0.01, 1e-3, 4.0
# One step in which every record takes part, so that the weights that leave are those that came less
# RATE times clipping lengths.
STEP: dict[str, Any] = {
    "noise_multiplier": training_noise(epsilon=4.0, delta=DELTA, sampling_rate=1.0, steps=1),
    "sampling_rate": 1.0,
    "rounds": 1,
    "local_steps": 1,
    "clip": CLIP,
    "batch": 1.0,
    "learning_rate": RATE / CLIP,
}
CNN, SPAN = "cnn image=1,2,2 channels=4", {"target_low": -1.0, "target_high": 2.0}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        yield from installed(tmp_path_factory.mktemp("package"), patch)


def asked(package: Path, name: str) -> Plan:
    """A plan of one step: of a network of this package, of a factory, or of numbers."""
    if name == "convolutions":
        found = plan_of(package, name, side=2)
        return replace(found, terms=replace(TrainingTerms.of(found.terms), **STEP))
    numbers = name.startswith("numbers ")
    network = described(name.removeprefix("numbers "), features=4, outputs=1 if numbers else 3)
    span: dict[str, Any] = SPAN if numbers else {}
    score: dict[str, Any] = {"labels": 0, "score": "absolute-residual bound=5"} if numbers else {}
    return replace(TRAINING, terms=replace(TERMS, **network, **STEP, **span), **score)


def moved_by_one(plan: Plan, engine: str, folder: Path) -> float:
    """By how many clipping lengths the weights of an owner move with one record of its file.

    The noise of both answers is drawn from the same bytes, so that it is the same.
    """
    terms = TrainingTerms.of(plan.terms)
    start = np.random.default_rng(6).uniform(-LARGEST, LARGEST, terms.size).astype(np.float32)
    features, labels = people(RECORDS, 1)
    truth = labels if terms.span is None else features[:, 0] * 3 - 1
    others = features.copy(), truth.copy()
    # A record that is not finite and far outside, of another label or a target beyond the range.
    others[0][3] = np.inf, 0.0, np.nan, -7.0
    others[1][3] = (truth[3] + 1) % 3 if terms.span is None else 50.0
    found = []
    for number, (held, known) in enumerate(((features, truth), others)):
        one = rows(
            RECORDS,
            held,
            known,
            folder / str(number),
            policy=vetted(plan) if terms.code is not None else LEARNS,
            entropy=SeededEntropy(1),
            computing=Computing("cpu", engine),
        )
        found.append(left(answer(one, plan, start, 0)))
    assert np.abs(found[0] - start).max() > RATE
    return float(np.linalg.norm(found[1].astype(float) - found[0])) / RATE


def most(plan: Plan) -> float:
    """How many clipping lengths the noise is made for, and what float32 loses of the weights."""
    size = TrainingTerms.of(plan.terms).size
    lost = 2 * LARGEST * 2.0**-24 / RATE * size**0.5
    return 2 * sensitivity(size) / CLIP_UNITS + lost


def left(given: wire.Answer) -> NDArray[np.float32]:
    assert given.code == wire.Code.OK
    return np.frombuffer(wire.Weights.FromString(given.batch.body).weights, dtype="<f4")


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        (CNN, "ghost"),
        (CNN, "hooks"),
        ("mlp hidden=5", "stack"),
        (f"numbers {CNN}", "ghost"),
        ("numbers mlp hidden=5", "auto"),
        ("convolutions", "functional"),
    ],
)
def test_one_record_moves_what_leaves_by_no_more_than_the_noise_is_made_for(
    name: str, engine: str, package: Path, tmp_path: Path
) -> None:
    """Through policy, ledger, training and wire."""
    plan = asked(package, name)
    assert 0.25 < moved_by_one(plan, engine, tmp_path) <= most(plan)


def test_shares_that_are_too_long_are_seen(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: every share is four clipping lengths."""
    sums = clipper.clipped_sum
    monkeypatch.setattr(clipper, "clipped_sum", lambda *one, **more: 4 * sums(*one, **more))
    plan = asked(package, CNN)
    assert moved_by_one(plan, "ghost", tmp_path) > most(plan)
