"""Calibration of arrays in one process, by the procedures that campaigns run."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.aggregator.campaigns.driver import Outcome, RecordedTallies, conclude, run_procedure
from confide.aggregator.campaigns.planning.settings import belongs, check_used, promising
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.cards.card import Card
from confide.protocol.certificate import Certificate
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy, randomness
from confide.protocol.methods.counts.central import OWNER_NOISED, CentralTerms
from confide.protocol.methods.owner_terms import OWNER_VARIANTS
from confide.protocol.methods.registry import METHODS, local_variants
from confide.protocol.plan import Plan
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.base import Score
from confide.protocol.simulated.settings import ALWAYS
from confide.simulation.arrays.calibration_settings import CalibrationSettings
from confide.simulation.arrays.records import ArrayRecords, draw_order, read_records, with_groups
from confide.simulation.arrays.rounds import CountedRounds
from confide.simulation.arrays.users import USERS
from confide.simulation.driver import (
    CountingOwner,
    NoisingOwners,
)
from confide.simulation.planning import plan as make_campaign_plan
from confide.simulation.presence import Presence

NON_PRIVATE = "non-private"


def variants() -> dict[str, tuple[str, ...]]:
    """The methods that calibrate arrays, each with its variants, the default one first."""
    return {**local_variants(), CentralTerms.method: CentralTerms.variants}


@dataclass(frozen=True)
class Calibration:
    """A threshold with its certificate, from which a predictor and a card can be made.

    `outcome` and `plan` are those of the campaign that was run; a calibration without privacy has
    none. `crowd` is the number of reports of its smallest round, which a shuffler would mix; it is
    0 where reports do not hide among each other. `owners` are those that answered, in the order in
    which the certificate numbers them.
    """

    score: Score
    certificate: Certificate
    label_count: int | None
    plan: Plan | None = None
    outcome: Outcome | None = None
    crowd: int = 0
    owners: tuple[str, ...] = ()

    @property
    def threshold(self) -> float:
        """The number that a score must not exceed for its label to be in the set."""
        return self.certificate.threshold

    @property
    def predictor(self) -> Predictor:
        """The predictor of this threshold, which takes what the model returns."""
        made = self.certificate
        return Predictor(
            self.score,
            self.threshold,
            self.label_count,
            class_thresholds=made.class_thresholds,
            group_thresholds=made.group_thresholds,
        )

    def card(self, key: Ed25519PrivateKey, *, diagnostic: dict[str, Any] | None = None) -> Card:
        """Issue the signed card of this calibration, which anybody can verify and predict with.

        `diagnostic` holds what was measured on other records, such as coverage and mean_size.
        """
        if self.plan is None or self.outcome is None:
            raise BadInput("a calibration without privacy has no card; accepted is another method")
        if not self.outcome.contributors:
            # As in a campaign of owners, which fails then: its plan asks for one owner or more.
            raise BadInput(
                f"no record was asked, so there is no card: {self.certificate.reason}; accepted "
                "are enough records"
            )
        issued = datetime.now(UTC)
        return campaign_card(
            self.plan, self.outcome, diagnostic=diagnostic or {}, issued=issued
        ).sign(key)

    def __str__(self) -> str:
        made = self.certificate
        promise = f"coverage of at least {made.level:g} ({made.kind})"
        cost = "not private" if made.epsilon is None else f"epsilon {made.epsilon:.4f}"
        why = f"; trivial: {made.reason}" if made.trivial else ""
        return (
            f"{made.method} {made.variant}, score {self.score.text}: threshold "
            f"{self.threshold:.6g} from {made.n:,} records, {promise}, {cost}{why}"
        )


def calibrate(
    results: Any,
    truth: Any,
    *,
    score: str = "hps",
    method: str = "bits",
    epsilon: float = 1.0,
    alpha: float = 0.1,
    model: Path | str | None = None,
    name: str = "calibration in process",
    seed: int | None = None,
    owners: Any = None,
    groups: Any = None,
    **settings: Unpack[CalibrationSettings],
) -> Calibration:
    """Calibrate a model on records that are all here, as a campaign would on many owners'.

    `results` is what the model returned for the records: probabilities (n, K), or numbers as the
    score reads them, (n,) or (n, 2). `truth` holds the labels, or the numbers, that were observed;
    for `false-negatives` (n, K) flags of true labels, and for `own-loss values=N` (n, N) losses,
    without results (None).

    `method` is one of these, or one with a variant, such as `bits:one-shot`:

    - `labels`: certified, class-conditional, for-every-owner, per-owner, for-every-group,
      per-group, published, published-star
    - `bits`: certified, one-shot, for-every-owner, per-owner, for-every-group, per-group,
      published, published-star
    - `pairs`: class-conditional
    - `central`: trusted; owner-noised, where `owners` is how many owners share the records evenly,
      and each noise their counts
    - `non-private`

    `settings` are the method's own; those not given have the defaults of a federation:

    - `labels`, `bits` and `pairs`: `failure_probability`, `max_corrupt`
    - `guarantee` of `labels`, `bits` and `bits:one-shot`: `PAC`, `marginal` (on average), or `band`
      (PAC at many levels of coverage together; not of `bits`)
    - variants of owners and groups: `owner_floor`, `group_floor`, `joint` (per-owner, per-group)
    - `labels`: `channel`, `provider_data`; certified, owners, groups: `largest_set`;
      class-conditional: `joint`, `class_floor`
    - `pairs`: `channel`, `joint`, `class_floor`
    - `central`: `bins`, `grid`, `provider_data` (grid `even`), `edges_file` (grid `given`), `beta`,
      `guarantee` (`marginal`, or `PAC` with a `failure_probability`), `privacy_delta`, and
      `by` (`class` or `group`) for a threshold of each; trusted: `mechanism`

    `model` is the ONNX file that cards shall name, and `name` the title of the campaign on them.

    Otherwise `owners` names the owner of every record, for the variants that test owners one by
    one; cards number them in the order of their names. `groups` holds the public group of every
    record, for what is divided by groups; plans name the values that occur, of the column
    `group_column` ("group").

    Randomness is the operating system's. A `seed` repeats a run, and makes its card a simulation.
    """
    records = read_records(results, truth, score, groups=groups)
    _check_owners(owners, method, n=len(records.truth))
    named = with_groups(records, settings)
    order, u = draw_order(len(records.truth), seed)
    held = owners if owners is None or isinstance(owners, int) else np.asarray(owners)[order]
    return calibrate_in_order(
        records.taken(order, u=u),
        seeded(seed),
        method=method,
        epsilon=epsilon,
        alpha=alpha,
        model=model,
        name=name,
        owners=held,
        **named,
    )


def seeded(seed: int | None) -> Entropy:
    """The randomness of a calibration."""
    return os_entropy if seed is None else SeededEntropy("calibrate", seed)


def calibrate_in_order(
    records: ArrayRecords,
    entropy: Entropy,
    *,
    method: str,
    epsilon: float = 1.0,
    alpha: float = 0.1,
    model: Path | str | None = None,
    name: str = "calibration in process",
    owners: Any = None,
    presence: Presence | None = None,
    **settings: Any,
) -> Calibration:
    """Calibrate on records in the order in which they are asked, those present in a round."""
    score, n, labels = records.score, len(records.truth), records.labels
    _check_owners(owners, method, n=n)
    if method == NON_PRIVATE:
        check_used([key.replace("_", "-") for key in settings], promising([method]), belongs())
        own = records.own if presence is None else records.own[presence(slice(0, n))]
        return Calibration(score, split_conformal(own, alpha=alpha), labels or None)
    asked: dict[str, Any] = {"score": score.text, "epsilon": epsilon, "alpha": alpha}
    counted = {"records": max(1, n), "labels": labels}
    plan = make_campaign_plan(
        campaign_of(method), model=model, title=name, days=1, **counted, **asked, **settings
    )
    if entropy is not os_entropy:
        # A seeded run repeats in every bit of its plan.
        plan = replace(plan, issued=ALWAYS[0], expires=ALWAYS[1])
    if _noised(method):
        assert presence is None, "noising owners are all there"
        key = CentralTerms.of(plan.terms).key
        records = records.in_groups(plan.terms.groups) if plan.terms.groups else records
        places = None if key is None else key.places(CountingOwner(*records.counted))
        dealt = 1 if owners is None else owners
        users: Any = NoisingOwners(records.own, dealt, entropy, places)
    else:
        parts = None if isinstance(owners, int) else owners
        if plan.terms.groups:
            records = records.in_groups(plan.terms.groups)
            parts = records.groups
        users = USERS[plan.method](records, entropy, parts, presence=presence)
    outcome, crowd, answered = _run(plan, users, entropy)
    return Calibration(score, outcome.certificate, labels or None, plan, outcome, crowd, answered)


def _noised(method: str) -> bool:
    """Whether a method is a campaign in which owners noise their counts."""
    name, _, variant = method.partition(":")
    return name in METHODS and variant in METHODS[name].noised_variants


def _check_owners(owners: Any, method: str, *, n: int) -> None:
    """Refuse owners of another kind than the method has, and a method without its owners."""
    noised = _noised(method)
    if owners is None:
        if method.partition(":")[2] in OWNER_VARIANTS:
            raise BadInput(
                f"method {method} tests owners one by one, and owners is not given; accepted is "
                "the owner of every record, in `confide.calibrate`, or --owner-column of `confide "
                "evaluate`"
            )
    elif isinstance(owners, int) != noised and not (isinstance(owners, int) and owners == 1):
        raise BadInput(
            f"owners is {str(owners)[:80]} with method {method}; accepted is a number for "
            f"{CentralTerms.method}:{OWNER_NOISED}, and else the owner of every record"
        )
    elif not isinstance(owners, int) and len(owners) != n:
        raise BadInput(f"{len(owners)} owners with {n} truths; accepted is one each")


def campaign_of(method: str) -> str:
    """The campaign that a method means: its first variant, unless it names one."""
    asked, _, variant = method.partition(":")
    check_choice("method", asked, (*variants(), NON_PRIVATE))
    if variant:
        check_choice(f"variant of {asked}", variant, variants()[asked])
    return f"{asked}:{variant or variants()[asked][0]}"


def _run(
    plan: Plan, users: Callable[[Any], Any], entropy: Entropy
) -> tuple[Outcome, int, tuple[str, ...]]:
    """Run the plan's procedure on users in arrays; without owners, reports count as those of one.

    Returns the smallest number of reports of a round, too, and the owners that answered.
    """

    def draw(mechanism: Any, counts: Any, rank: Any) -> Any:
        return mechanism.release(counts, rank, entropy)

    counted = CountedRounds(users, plan.expected_records)
    recorded = RecordedTallies(plan, counted)
    certificate: Certificate = run_procedure(plan_procedure(plan, draw), recorded)
    crowd = min(filter(None, recorded.crowds), default=0)
    if not certificate.n:
        # So few records certify nothing whatever they say, and were not asked.
        seen = replace(certificate, randomness=randomness(entropy))
        return Outcome(seen, received={}, contributors=0, largest=0), crowd, ()
    sizes, rounds = counted.told(recorded, certificate)
    outcome = conclude(
        plan,
        certificate,
        received={"OK": 1},
        seeded=entropy is not os_entropy,
        sizes=sizes,
        owners=recorded.owners,
        rounds=rounds,
    )
    return outcome, crowd, tuple(key.decode() for key in outcome.senders)
