"""Calibration of one's own arrays in process."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import confide
from confide.aggregator.campaigns.planning.settings import KINDS, belongs
from confide.protocol.certificate import PAC
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SEEDED
from confide.protocol.simulated.embedded import predictions
from confide.simulation.arrays.calibrate import variants
from confide.simulation.arrays.calibration_settings import CalibrationSettings
from tests.support.cards.calibrated import calibrated
from tests.support.cards.cards import KEY, broken
from tests.support.truth.multi_label import many_labels, missed

PUBLIC = KEY.public_key().public_bytes_raw()


def uniform(n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Records whose hps score is uniform: the coverage of a threshold is the threshold."""
    scores = np.random.default_rng(seed).random(n).astype(np.float32)
    return np.stack([1 - scores, scores], axis=1), np.zeros(n, dtype=np.int64)


@pytest.mark.parametrize("method", ["central", "central:owner-noised"])
def test_records_of_several_labels_have_no_class(method: str) -> None:
    """A threshold for each class is refused in the plan, before an owner is asked; one for each
    group is not."""
    chances, flags = many_labels(1500, 1)
    asked: dict[str, Any] = {"score": "false-negatives", "epsilon": 4.0, "seed": 1}
    with pytest.raises(BadInput, match="by is class with score 'false-negatives'; accepted is by"):
        confide.calibrate(chances, flags, method=method, by="class", **asked)
    groups = np.arange(1500) % 2
    made = confide.calibrate(chances, flags, method=method, by="group", groups=groups, **asked)
    assert len(made.certificate.strata) == 2


@pytest.mark.parametrize("method", ["bits", "labels"])
def test_coverage_fails_as_seldom_as_promised(method: str) -> None:
    """The failure probability is 0.1; 15 of 40 would happen with probability below 1e-5."""
    thresholds = [
        confide.calibrate(*uniform(1500, seed), method=method, epsilon=4.0, seed=seed).threshold
        for seed in range(40)
    ]
    assert sum(threshold < 0.9 for threshold in thresholds) < 15
    assert np.mean(thresholds) < 0.97


@pytest.mark.parametrize(("method", "most"), [("bits", 15), ("central", 40)])
def test_risks_are_bounded_as_seldom_or_as_much_as_promised(method: str, most: int) -> None:
    """A threshold q misses 1 - q of three true labels. Bits fail with probability 0.1, so 15 of 40
    times with probability below 1e-5; counts promise 0.1 on average, which a mean of 40 misses by
    0.02 with probability below 1e-9."""
    thresholds = [
        confide.calibrate(
            *many_labels(1500, seed), method=method, score="false-negatives", epsilon=4.0, seed=seed
        ).threshold
        for seed in range(40)
    ]
    assert sum(missed(threshold) > 0.1 for threshold in thresholds) < most
    assert 0.88 < np.mean(thresholds) < 0.98


def test_a_risk_is_measured_as_it_is_promised() -> None:
    """`evaluate` shows one minus the loss as coverage, of sets and of losses of one's own."""
    chances, flags = many_labels(3000, 1)
    sets = confide.evaluate(chances, flags, score="false-negatives", epsilon=4.0, trials=2, seed=1)
    losses = np.linspace(1, 0, 20) * np.random.default_rng(2).random((3000, 1))
    own = confide.evaluate(None, losses, score="own-loss values=20", epsilon=4.0, trials=2, seed=1)
    assert 0.85 < sets.coverage < 1
    assert 0.85 < own.coverage < 1


def test_marginal_coverage_is_met_on_average() -> None:
    """The mean of 40 thresholds, each within 1 of 0.9, is above 0.9 less 4 standard errors."""
    thresholds = [
        confide.calibrate(*uniform(1500, seed), method="central", seed=seed).threshold
        for seed in range(40)
    ]
    error = np.sqrt(0.9 * 0.1 / 1500 / 40) + 1 / 1024
    assert 0.9 - 4 * error <= np.mean(thresholds) < 0.93


def test_randomness_is_the_operating_systems_unless_seeded() -> None:
    """A seed repeats a run and is stamped on it; without one two runs differ."""
    records = uniform(2000, 1)
    first, again = (confide.calibrate(*records, seed=5) for _ in range(2))
    assert first.certificate == again.certificate
    assert first.certificate.randomness == SEEDED
    free = {confide.calibrate(*records).threshold for _ in range(3)}
    assert len(free) > 1
    assert confide.calibrate(*records).certificate.randomness == OPERATING_SYSTEM
    assert confide.calibrate(*records, method="central").certificate.randomness == OPERATING_SYSTEM


@pytest.mark.parametrize(
    "method", ["bits", "bits:one-shot", "labels", "central", "central:owner-noised"]
)
def test_every_method_issues_a_card_that_verifies(method: str) -> None:
    """And the card names the calibrated model."""
    probs, labels = predictions()
    owners = 10 if method == "central:owner-noised" else 1
    made = calibrated(probs[:4000], labels[:4000], method=method, name="mine", owners=owners)
    card = made.card(KEY, diagnostic={"coverage": 0.9})
    assert broken(card, key=PUBLIC) == []
    assert card.formal["contract"]["name"] == "mine"
    assert card.formal["decision"] == "feasible"
    assert card.formal["released"]["threshold"] == made.threshold
    assert card.provenance["contributors"]["owners"] == owners


@pytest.mark.parametrize(
    ("method", "guarantee"),
    [
        ("labels", "marginal"),
        ("labels", "band"),
        ("bits", "marginal"),
        ("bits:one-shot", "marginal"),
        ("bits:one-shot", "band"),
    ],
)
def test_averages_and_bands_issue_cards_that_verify(method: str, guarantee: str) -> None:
    """The kind stands in the certificate, on the card and in what is printed; a band covers on
    fresh records what it says at a threshold chosen later."""
    probs, labels = predictions()
    made = calibrated(probs[:4000], labels[:4000], method=method, guarantee=guarantee)
    assert made.certificate.kind == guarantee
    assert f"({guarantee})" in str(made)
    card = made.card(KEY)
    assert broken(card, key=PUBLIC) == []
    assert card.formal["contract"]["kind"] == guarantee
    assert card.formal["decision"] == "feasible"
    if guarantee == "band":
        chosen = confide.Predictor.from_card(card, key=PUBLIC, coverage=0.7)
        sets = chosen.predict_set(probs[4000:])
        # Above the level by its margin, less four standard errors of the test records.
        error = np.sqrt(0.7 * 0.3 / len(sets))
        assert confide.metrics.coverage(sets, labels[4000:]) > 0.7 - 4 * error


def test_numbers_are_calibrated_too() -> None:
    """CQR intervals of two columns cover the targets, and torch tensors are taken."""
    rng = np.random.default_rng(2)
    targets = rng.normal(size=6000)
    bands = np.stack([np.full(6000, -0.5), np.full(6000, 0.5)], axis=1)
    made = confide.calibrate(
        torch.from_numpy(bands[:4000]), targets[:4000], score="cqr bound=4", epsilon=4.0, seed=1
    )
    found = made.predictor.predict_interval(bands[4000:])
    assert confide.metrics.coverage(found, targets[4000:]) > 0.88
    assert confide.metrics.mean_width(found) < 5


def test_records_that_are_too_few_to_be_asked_are_trivial_with_a_reason() -> None:
    """Even if all of them were covered, nothing would be certified; and no card would verify."""
    made = confide.calibrate(*uniform(3, 1), method="bits", epsilon=1.0, seed=1)
    assert (made.threshold, made.certificate.n) == (1.0, 0)
    assert made.certificate.reason
    assert made.certificate.randomness == SEEDED
    with pytest.raises(BadInput, match="no record was asked"):
        made.card(KEY)


def test_without_privacy_there_is_no_card() -> None:
    """Split conformal prediction is there to compare with."""
    made = confide.calibrate(*uniform(999, 3), method="non-private")
    assert made.threshold == pytest.approx(0.9, abs=0.05)
    assert "not private" in str(made)
    with pytest.raises(BadInput, match="has no card"):
        made.card(KEY)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "bit"}, "method is 'bit'; accepted: labels, bits, pairs, central"),
        ({"method": "bits:best"}, "variant of bits is 'best'"),
        ({"method": "central:noised"}, "variant of central is 'noised'; accepted: trusted, own"),
        ({"owners": 2}, "owners is 2 with method bits; accepted is a number for central:owner-n"),
        ({"method": "central", "privacy_delta": 1e-5}, "the mechanism is pure"),
        ({"score": "hpz"}, "score is 'hpz'"),
        ({"bins": 10}, "bins is given, which bits:certified does not use"),
        (
            {"epsilons": 1},
            "epsilons is no setting of bits:certified; accepted: alpha, crowd, epsil",
        ),
        ({"alpha": 2}, "alpha is 2"),
        ({"model": "none.onnx"}, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], words: str) -> None:
    """With what was found and what is accepted."""
    with pytest.raises(BadInput, match=words):
        confide.calibrate(*uniform(100, 1), **given)
    with pytest.raises(BadInput, match="99 truths"):
        confide.calibrate(uniform(100, 1)[0], uniform(99, 1)[1])


def test_evaluations_say_what_privacy_costs() -> None:
    """The measured coverage is the promised one or more, and less epsilon gives larger sets."""
    probs, labels = predictions()
    found = confide.compare(
        probs, labels, methods=["bits"], epsilons=[1.0, 4.0], trials=3, n=4000, seed=1
    )
    assert [one.epsilon for one in found] == [None, 1.0, 4.0]
    plain, low, high = found
    assert plain.size < high.size < low.size
    assert all(one.coverage > 0.88 for one in found)
    assert (high.kind, high.trivial, high.n) == ("PAC", 0.0, 4000)
    assert str(high).startswith("bits, epsilon 4: coverage 0.9")
    with pytest.raises(BadInput, match="n is 16000"):
        confide.evaluate(probs, labels, n=16_000)


def test_types_name_every_setting_and_no_other() -> None:
    """Those of the methods that calibrate arrays, but for what needs a server or is an argument. A
    setting with a wrong name or type is refused by a type checker: were it not, the marks below
    would be unused, which is an error."""
    methods = variants()
    asked = {*methods} | {f"{name}:{one}" for name, own in methods.items() for one in (*own, PAC)}
    known = {name for name, whose in belongs().items() if asked & {*whose} and name in KINDS}
    known -= {"scoring", "sent-features", "shuffler", "crowd", "groups"}
    typed = {*CalibrationSettings.__annotations__} - {"minimum_reports", "minimum_owners"}
    assert {name.replace("_", "-") for name in typed} == known
    probs, labels = np.full((50, 2), 0.5), np.zeros(50, dtype=int)
    with pytest.raises(BadInput, match="epsilom is no setting of bits"):
        confide.calibrate(probs, labels, epsilom=2.0)  # type: ignore[call-arg]
    with pytest.raises(BadInput, match="max-corrupt"):
        confide.evaluate(probs, labels, max_corrupt="1")  # type: ignore[arg-type]
