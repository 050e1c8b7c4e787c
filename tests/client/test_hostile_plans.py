"""Plans and queries of a hostile aggregator, against the owner's real command."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from numpy.typing import NDArray
from scipy.special import ndtri

from confide.protocol.exact.lattice import CLIP_UNITS
from confide.protocol.exact.sampling import os_entropy, words
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.plan import Plan, digest, sign_plan
from confide.protocol.wire import wire_pb2 as wire
from tests.support.networks.stacks import layered, stack_at
from tests.support.owners.boundary import (
    LABELS,
    LEARNS,
    PLAN,
    ROUND,
    STEPS,
    SURE,
    TRAINING,
    N,
    crowd,
    home,
    people,
    weights_of,
)
from tests.support.owners.hostile import Puppet
from tests.support.owners.owners import KEY, PUBLIC, changed
from tests.support.repository.places import ROOT
from tests.support.servers.servers import client


def raw(plan: Plan, **changes: Any) -> bytes:
    """A signed plan with numbers that no `Plan` takes."""
    message = wire.Plan.FromString(plan.to_bytes())
    terms = wire.TrainingTerms.FromString(message.terms)
    for field, value in changes.items():
        setattr(terms if hasattr(terms, field) else message, field, value)
    message.terms = terms.SerializeToString(deterministic=True)
    data = message.SerializeToString(deterministic=True)
    signature = KEY.sign(b"confide plan v2\0" + data)
    return wire.SignedPlan(plan=data, key=PUBLIC, signature=signature).SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 1e200},
        {"clip": 1e-200},
        {"clip": 5e-324},
        {"batch": 1e-300},
        {"batch": 1e300},
        {"learning_rate": 1e300},
        {"learning_rate": 1e-300},
        {"noise_multiplier": 1e300},
        {"sampling_rate": 1e-300},
        {"local_steps": 1 << 20},
        {"rounds": 1 << 30},
        {"labels": 1 << 31},
        {"expected_records": 1 << 63},
    ],
)
def test_numbers_that_break_arithmetic_are_no_plan(changes: dict[str, Any], tmp_path: Path) -> None:
    """4 and 11. A clip of 1e200 made noise infinite, 2^20 steps kept the ledger locked: such plans
    are refused unread."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, ROUND) as puppet:
        puppet.signed = raw(TRAINING, **changes)
        puppet.campaign = digest(wire.SignedPlan.FromString(puppet.signed).plan).hex()[:16]
        assert puppet.ask(place, records) == 1
    assert puppet.answers == []
    (tmp_path / "plan.bin").write_bytes(puppet.signed)
    code, shown = client("explain", tmp_path / "plan.bin", "--home", place)
    assert (code, "not a signed plan" in shown) == (1, True)


# One step on one record, all of it in the answer: features, outputs and noise for the attack on the
# low-order bits.
WIDE = replace(
    STEPS,
    epsilon=SURE,
    **layered(20_000, 2),
    noise_multiplier=2.0,
    sampling_rate=1.0,
    rounds=1,
    local_steps=1,
    batch=1.0,
    learning_rate=1.0,
)
TRIALS = 60


def guess(weights: NDArray[np.float32]) -> bool:
    """Whether a record took part, by low-order bits alone (Mironov 2012).

    From weights of 0 the record's gradient is 0.005 at every weight. In single precision 0.005 plus
    noise near -0.005 is a multiple of 2^-31, while noise alone that is as small as such a sum has
    more bits.
    """
    small = weights[np.abs(weights) < 2.0**-12].astype(np.float64)
    return len(small) > 0 and bool(np.all(small * 2.0**31 == np.rint(small * 2.0**31)))


def float_step(labels: Any) -> NDArray[np.float32]:
    """The same step with noise in floating point."""
    sums = (
        stack_at(WIDE, np.zeros(WIDE.size)).clipped_sum(np.ones((1, 20_000)), labels) / CLIP_UNITS
    )
    noise = 2.0 * ndtri(((words(WIDE.size, 64, os_entropy) >> np.uint64(11)) + 0.5) * 2.0**-53)
    return -(sums.astype(np.float32) + noise.astype(np.float32))


def test_low_order_bits_do_not_tell_who_took_part(tmp_path: Path) -> None:
    """5. An aggregator that picks the weights and inspects every bit guesses at chance, and wins
    against float noise.

    False alarms: 50 or more of 60 fair guesses are right with probability 1e-7. The guess looks at
    bits that the two cases have alike, so it is fair whatever the gradient does to the larger ones.
    Against floating point a guess is wrong with probability about 0.015 (no weight is near 0), and
    more than 10 of 60 are with probability below 1e-8.
    """
    plan = replace(TRAINING, terms=WIDE)
    present, absent = np.array([0]), np.array([9])
    right = {"ours": 0, "floating point": 0}
    for trial in range(TRIALS):
        labels, folder = present if trial % 2 else absent, tmp_path / str(trial)
        place = home(folder, **LEARNS, minimum_group="1")
        with Puppet(plan, TrainingQuery(WIDE, np.zeros(WIDE.size, dtype=np.float32))) as puppet:
            assert (
                puppet.ask(place, people(folder / "records.npz", np.ones((1, 20_000)), labels)) == 0
            )
        found = np.frombuffer(weights_of(puppet.answers[0]), dtype="<f4")
        # All weights near 0 are whole lattice units, whoever took part.
        units = found[np.abs(found) < 2.0**-8].astype(np.float64) * CLIP_UNITS
        assert np.array_equal(units, np.rint(units))
        right["ours"] += guess(found) == bool(trial % 2)
        right["floating point"] += guess(float_step(labels)) == bool(trial % 2)
    assert right["floating point"] >= 50
    assert right["ours"] < 50


def test_a_plan_is_that_of_the_campaign_named(tmp_path: Path) -> None:
    """10. Asked for one campaign, the aggregator sends the plan of another: nothing is answered."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, ROUND) as puppet:
        puppet.signed = sign_plan(changed(TRAINING, campaign="another"), KEY)
        assert puppet.ask(place, records) == 1
    assert puppet.answers == []


def test_a_plan_is_the_one_whose_whole_digest_is_named(tmp_path: Path) -> None:
    """10. An id has 64 bits, and who signs two plans can try until they agree: `plan` shows the
    whole digest of what was explained, and `contribute` takes it."""
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    name = digest(TRAINING.to_bytes()).hex()
    with Puppet(TRAINING, ROUND) as puppet:
        command = puppet.options(place, records)
        fetch = [*command[1:10], "--out", str(tmp_path / "plan.bin")]
        assert name in client("plan", *fetch)[1]
        puppet.campaign = f"{name[:-1]}{'01'[name[-1] == '0']}"
        assert puppet.ask(place, records) == 1
        assert puppet.answers == []
        puppet.campaign = name
        assert puppet.ask(place, records) == 0
    assert puppet.codes == ["OK"]


def test_few_records_do_not_train(tmp_path: Path) -> None:
    """10. The policy's smallest group holds for training as for everything else; the number of
    records is public."""
    place = home(tmp_path, **LEARNS, minimum_group=str(N + 1))
    with Puppet(TRAINING, ROUND) as puppet:
        puppet.ask(place, people(tmp_path / "records.npz", crowd(0.9)))
    assert puppet.codes == ["GROUP_TOO_SMALL"]


FULL_DATA = FullDataTerms(
    variant="certified",
    mechanism="rank-exponential",
    epsilon=4.0,
    privacy_delta=0.0,
    bins=256,
    beta=0.002,
    training_noise=STEPS.noise_multiplier,
    training_rate=STEPS.sampling_rate,
    training_steps=4,
    training_delta=1e-6,
)
COUNTS = CentralTerms(
    variant="trusted", mechanism="rank-exponential", epsilon=8.0, bins=256, beta=0.0
)
# Odds are rounded up, and never to certainty: e^8 : 1 is 99.966 : 0.034.
WORST = {
    "training": (TRAINING, "98.3 : 1.7"),
    "bits": (PLAN, "99.9999998 : 0.0000002"),
    "labels": (replace(PLAN, terms=replace(LABELS, epsilon=1.0)), "73.2 : 26.8"),
    "counts": (replace(PLAN, terms=COUNTS), "99.97 : 0.03"),
    "full-data": (replace(PLAN, training=bytes(32), terms=FULL_DATA), "99.97 : 0.03"),
}


@pytest.mark.parametrize(("plan", "odds"), WORST.values(), ids=WORST)
def test_odds_are_those_of_replacing_a_record(plan: Plan, odds: str, tmp_path: Path) -> None:
    """10. What is explained is what is charged: epsilon in replace-one, as odds."""
    place = home(tmp_path, **LEARNS)
    (tmp_path / "plan.bin").write_bytes(sign_plan(plan, KEY))
    shown = client("explain", tmp_path / "plan.bin", "--home", place)[1]
    assert "replace-one" in shown
    assert odds in shown


def test_a_training_that_pays_for_adding_a_record_only_is_no_plan(tmp_path: Path) -> None:
    """10. Noise that suffices where a record is added or removed does not pay for replacing one.

    The epsilon lies above what an independent accountant finds for adding and removing.
    """
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    step = dp_accounting.GaussianDpEvent(STEPS.noise_multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(STEPS.sampling_rate, step), 4)
    paid = 1.2 * accountant.get_epsilon(STEPS.privacy_delta)
    assert 1.5 < paid < STEPS.epsilon
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, ROUND) as puppet:
        puppet.signed = raw(TRAINING, epsilon=paid)
        puppet.campaign = digest(wire.SignedPlan.FromString(puppet.signed).plan).hex()[:16]
        assert puppet.ask(place, records) == 1
    assert puppet.answers == []
    (tmp_path / "plan.bin").write_bytes(puppet.signed)
    code, shown = client("explain", tmp_path / "plan.bin", "--home", place)
    assert (code, "not a signed plan" in shown) == (1, True)


def test_no_plan_takes_long_to_check(tmp_path: Path) -> None:
    """11. The longest training with the least noise is decided at once: one such check took 284
    seconds (here 60 at most)."""
    extreme = {
        "noise_multiplier": 0.2,
        "sampling_rate": 0.5,
        "rounds": 1 << 11,
        "local_steps": 1 << 9,
    }
    place, records = home(tmp_path, **LEARNS), people(tmp_path / "records.npz", crowd(0.9))
    with Puppet(TRAINING, ROUND) as puppet:
        puppet.signed = raw(TRAINING, **extreme)
        puppet.campaign = digest(wire.SignedPlan.FromString(puppet.signed).plan).hex()[:16]
        command = [sys.executable, "-m", "confide.client", *puppet.options(place, records)]
        assert (
            subprocess.run(
                command, cwd=ROOT, timeout=60, check=False, capture_output=True
            ).returncode
            == 1
        )
    assert puppet.answers == []
