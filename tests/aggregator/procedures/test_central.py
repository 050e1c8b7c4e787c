from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import Outcome, run_campaign
from confide.aggregator.campaigns.releases import Kept
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.central import draw_afresh, noise_offset, owner_noised, trusted
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.quantiles.base import Mechanism, Release
from confide.aggregator.quantiles.histogram import Histogram, certified_rank, histogram
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.client.explain import explain
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.respond import Respondent
from confide.protocol.cards.verify.card import verify
from confide.protocol.certificate import CentralCertificate
from confide.protocol.errors import BadInput
from confide.protocol.exact.gaussian import discrete_gaussian
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import Entropy, SeededEntropy, os_entropy
from confide.protocol.methods.central import (
    CountProcedure,
    CountQuery,
    CountTally,
    HistogramQuery,
    HistogramTally,
)
from confide.protocol.plan import Plan, digest, open_plan, write_query
from confide.protocol.privacy.zcdp import search_steps, zcdp_epsilon
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse, serialise
from tests.support.central import BINS, CENTRAL, NOISED, TRUSTED, drive
from tests.support.owners import (
    KEY,
    NOW,
    POLICY,
    PUBLIC,
    asking,
    central,
    changed,
    owner,
    records,
    scored,
    signed,
)

OWNERS = 4


def owners(
    tmp_path: Path, policy: Policy = CENTRAL, n: int = 1_500, entropy: Entropy | None = None
) -> list[Any]:
    return [
        owner(tmp_path / str(seed), seed=seed, n=n, policy=policy, entropy=entropy)
        for seed in range(OWNERS)
    ]


@pytest.mark.parametrize(
    "plan", [TRUSTED, changed(TRUSTED, mechanism="laplace-counts", bins=16), NOISED]
)
def test_a_campaign_of_counts_gives_a_threshold_and_a_card(plan: Plan, tmp_path: Path) -> None:
    """Owners count, the sum is released privately, and the card of it verifies.

    Noise is the operating system's. The top of the grid is released when noise takes away what the
    bin below it has beyond the rank and its margin: of noisy counts, the nearest to that, more than
    400 of scale 16, so with probability below 1e-11.
    """
    outcome = run_campaign(
        plan, asking(signed(plan), owners(tmp_path, n=3_000, entropy=os_entropy))
    )
    certificate = outcome.certificate
    assert isinstance(certificate, CentralCertificate)
    assert (certificate.n, certificate.owners, certificate.kind) == (
        3_000 * OWNERS,
        OWNERS,
        "marginal",
    )
    assert certificate.level == pytest.approx(0.9)
    assert 0.5 < certificate.threshold < 1
    assert certificate.epsilon is not None
    assert certificate.epsilon <= plan.epsilon
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW).sign(KEY)
    assert [finding.clause for finding in verify(card) if not finding.holds] == []
    assert card.formal["decision"] == "feasible"
    assert card.formal["searched"][0]["inflation_ranks"] == certificate.inflation


def test_exact_counts_add_up_to_the_histogram_of_all_records(tmp_path: Path) -> None:
    """What a trusted aggregator sums is the histogram of everybody's scores."""
    seen: list[Histogram] = []

    def draw(mechanism: Mechanism, counts: Histogram, rank: int) -> Release:
        seen.append(counts)
        return mechanism.release(counts, rank, SeededEntropy(1))

    run_campaign(TRUSTED, asking(signed(TRUSTED), owners(tmp_path)), draw=draw)
    every = [records(1_500, seed) for seed in range(OWNERS)]
    scores = np.concatenate([1 - scored(one)[np.arange(len(one)), one.labels] for one in every])
    assert np.array_equal(seen[0].counts, histogram(scores, uniform_grid(BINS)).counts)


def test_a_release_is_drawn_once(tmp_path: Path) -> None:
    """A retry with the same plan gets the release that is on disk; another mechanism's file is
    refused."""
    mechanism = RankExponential(bins=8, beta=0.1, epsilon=0.1)
    counts = Histogram(np.full(8, 50), uniform_grid(8))
    draws = [
        Kept(tmp_path / "release.json", SeededEntropy(seed))(mechanism, counts, 300)
        for seed in range(20)
    ]
    assert set(draws) == {draws[0]}
    free = {mechanism.release(counts, 300, SeededEntropy(seed)).bin for seed in range(20)}
    assert len(free) > 1
    assert [path.name for path in tmp_path.iterdir()] == ["release.json"]
    (tmp_path / "release.json").write_text("{}")
    with pytest.raises(BadInput, match="must not be drawn again"):
        Kept(tmp_path / "release.json", SeededEntropy(1))(mechanism, counts, 300)


def searched(plan: Plan) -> CountProcedure:
    return owner_noised(central(plan), alpha=plan.alpha)


def noisy(
    scores: list[np.ndarray[Any, Any]],
    variance: int,
    entropy: Any,
    missing: Any = lambda step, i: False,
) -> Any:
    """Owners as a function of the query, in process."""
    step = -1

    def answer(query: CountQuery) -> CountTally:
        nonlocal step
        step += 1
        noise = discrete_gaussian(Fraction(variance), len(scores), entropy)
        return CountTally(
            {
                bytes([i]) * 16: (len(own), int((own <= query.threshold).sum() + noise[i]))
                for i, own in enumerate(scores)
                if not missing(step, i)
            }
        )

    return answer


def test_the_search_misses_the_rank_no_more_often_than_beta() -> None:
    """Of 300 searches no more land below the rank's score than a rate of beta gives except with
    probability 1e-6; with ten times the noise that the offset reckons with (a planted bug) far more
    do."""
    rng, entropy = np.random.default_rng(5), SeededEntropy(5)
    plan = changed(NOISED, bins=64, beta=0.09, noise_variance=400)
    scores = [rng.random(400) for _ in range(OWNERS)]
    rank = certified_rank(n=1_600, alpha=plan.alpha, beta=central(plan).beta)
    needed = np.sort(np.concatenate(scores))[rank - 1]
    trials = 300
    low = sum(
        drive(searched(plan), noisy(scores, 400, entropy)).threshold < needed for _ in range(trials)
    )
    limit = int(binom.isf(1e-6, trials, central(plan).beta))
    assert low <= limit
    planted = sum(
        drive(searched(plan), noisy(scores, 400 * 100, entropy)).threshold < needed
        for _ in range(trials)
    )
    assert planted > limit


def test_an_owner_that_stays_away_only_raises_the_threshold() -> None:
    """Missing answers count as nothing: the rank stays that of the first round, and the inflation
    bound is withdrawn."""
    rng = np.random.default_rng(6)
    scores = [rng.random(3_000) for _ in range(OWNERS)]
    plan = changed(NOISED, noise_variance=300)
    everybody = drive(searched(plan), noisy(scores, 1, SeededEntropy(1)))
    some = drive(
        searched(plan),
        noisy(scores, 1, SeededEntropy(1), missing=lambda step, i: step > 0 and i == 0),
    )
    assert some.threshold > everybody.threshold
    assert (some.n, some.rank, some.inflation) == (12_000, everybody.rank, None)
    assert everybody.inflation is not None
    late = drive(
        searched(plan),
        noisy(scores, 1, SeededEntropy(1), missing=lambda step, i: step == 0 and i == 0),
    )
    assert (late.n, late.owners) == (9_000, 3)
    nobody = drive(
        searched(plan),
        noisy(scores, 1, SeededEntropy(1), missing=lambda step, i: True),
    )
    assert nobody.threshold == 1
    assert nobody.reason == "no records were counted"


def test_too_few_records_end_in_the_top_of_the_grid() -> None:
    """A rank beyond the records is infeasible, and says so; nothing is drawn for it."""
    few = HistogramTally(np.array([3] + [0] * (BINS - 1)), 1)

    def never(*_: Any) -> Release:
        raise AssertionError("nothing may be drawn")

    certificate = drive(trusted(central(TRUSTED), alpha=TRUSTED.alpha, draw=never), lambda _: few)
    assert certificate.threshold == 1
    assert "infeasible" in str(certificate.reason)


@pytest.mark.parametrize("plan", [TRUSTED, NOISED])
def test_an_infeasible_campaign_has_a_card_that_verifies(plan: Plan, tmp_path: Path) -> None:
    """With eight records there is no rank for this target: the top of the grid is released, and the
    card says why."""
    plan = changed(plan, minimum_reports=0)
    few = owner(tmp_path, n=8, policy=replace(CENTRAL, minimum_group=1), entropy=os_entropy)
    outcome = run_campaign(plan, asking(signed(plan), [few]))
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW).sign(KEY)
    assert card.formal["decision"] == "infeasible"
    assert card.formal["failed"][0] == "rank"
    assert [finding.clause for finding in verify(card) if not finding.holds] == []


def test_the_tail_of_summed_noise_is_the_true_one() -> None:
    """For one owner the offset is exact by the definition of the law; for many it is within a rank
    of the normal one."""
    x = np.arange(-400, 401)
    law = np.exp(-(x**2) / (2 * 90.0))
    law /= law.sum()
    for beta in (0.2, 1e-2, 1e-4, 1e-6):
        offset = noise_offset(90, 1, beta)
        assert law[x > offset].sum() <= beta < law[x > offset - 1].sum()
    many = np.array(
        [discrete_gaussian(Fraction(90), 20, SeededEntropy(i)).sum() for i in range(400)]
    )
    assert abs(many.std() / np.sqrt(20 * 90) - 1) < 0.2
    assert noise_offset(90, 20, 1e-3) == pytest.approx(3.0902 * np.sqrt(20 * 90), abs=1.5)
    assert noise_offset(90, 20, 1e-3) < np.sqrt(2 * 20 * 90 * np.log(1e3))


def test_the_plan_pays_for_all_counts_together() -> None:
    """The variance is the least whole one within (epsilon, delta); a plan with less is refused."""
    steps = search_steps(BINS)
    assert steps == 8
    spent = [
        zcdp_epsilon(steps / (2 * (central(NOISED).noise_variance - less)), 1e-6) for less in (0, 1)
    ]
    assert spent[0] <= 1.0 < spent[1]
    with pytest.raises(BadInput, match="the plan says"):
        changed(NOISED, noise_variance=central(NOISED).noise_variance - 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"beta": 0.1},
        {"beta": 0.0},
        {"bins": 1},
        {"noise_variance": 5},
        {"privacy_delta": 1.0},
        {"mechanism": ""},
        {"mechanism": "[red]"},
        {"mechanism": "x" * 65},
    ],
)
def test_impossible_central_plans_are_refused(changes: dict[str, Any]) -> None:
    """With what was found and what is accepted."""
    with pytest.raises(BadInput):
        changed(TRUSTED, **changes)


@pytest.mark.parametrize("name", ["dpcp", "noisy-midpoint", "votes"])
def test_a_mechanism_that_certifies_nothing_calibrates_nothing(name: str) -> None:
    """It is refused before anybody is asked, with the mechanisms that are accepted."""
    plan = changed(TRUSTED, mechanism=name)
    with pytest.raises(BadInput, match=r"accepted: .*rank-exponential"):
        next(plan_procedure(plan, draw_afresh))


def first_query(plan: Plan) -> HistogramQuery | CountQuery:
    if plan.variant == "trusted":
        return HistogramQuery(BINS)
    return CountQuery(0.5, central(plan).noise_variance)


def ask(one: Any, plan: Plan, threshold: float, round_: int) -> wire.Answer:
    query = CountQuery(threshold, central(plan).noise_variance)
    return parse(
        wire.Answer,
        one.answer(signed(plan), write_query(query, plan=digest(plan.to_bytes()), round_=round_)),
    )


def counted(answer: wire.Answer) -> Any:
    """The numbers in an owner's answer."""
    return np.frombuffer(wire.Counts.FromString(answer.batch.body).counts, "<i8")


def test_a_hostile_aggregator_gets_no_more_counts_than_were_paid_for(tmp_path: Path) -> None:
    """The plan's whole epsilon is charged with the first count; the rounds are counted, repeated
    questions get the same bytes, and a second campaign finds nothing left."""
    one = owner(tmp_path, policy=CENTRAL)
    answers = [ask(one, NOISED, 0.1 + i / 100, i % 8) for i in range(12)]
    assert [wire.Code.Name(answer.code) for answer in answers] == ["OK"] * 8 + ["ALREADY_SPENT"] * 4
    assert ask(one, NOISED, 0.1, 0) == answers[0]
    assert ask(one, NOISED, 0.5, 8).code == wire.Code.MALFORMED
    assert Ledger(tmp_path / "ledger.sqlite").spent_by_record() == (2_000, 1.0)
    assert ask(one, changed(NOISED, campaign="another"), 0.1, 0).code == wire.Code.ALREADY_SPENT
    counts = [counted(answer) for answer in answers[:8]]
    assert {count[0] for count in counts} == {2_000}
    assert len({answer.batch.ids for answer in answers[:8]}) == 1


def test_delta_adds_up_over_a_records_life(tmp_path: Path) -> None:
    """Two campaigns at delta 1e-6 want 2e-6; a policy of 1.5e-6 a record stops the second, whatever
    epsilon is left."""
    one = owner(tmp_path, policy=replace(CENTRAL, epsilon_per_record=40.0, delta_per_record=1.5e-6))
    assert ask(one, NOISED, 0.5, 0).code == wire.Code.OK
    assert ask(one, changed(NOISED, campaign="another"), 0.5, 0).code == wire.Code.ALREADY_SPENT


@pytest.mark.parametrize("plan", [TRUSTED, NOISED])
def test_records_that_come_later_take_no_part(plan: Plan, tmp_path: Path) -> None:
    """An owner whose file grew answers a later round for the records that paid, and a one-round
    plan not at all."""
    few, more = records(100, 1), records(200, 1)

    def with_(found: Any) -> Respondent:
        return Respondent(
            records=found,
            policy=lambda: CENTRAL,
            ledger=Ledger(tmp_path / "ledger.sqlite"),
            secret=bytes(32),
            entropy=SeededEntropy(1),
            now=lambda: NOW,
        )

    name = digest(plan.to_bytes())
    query = (
        HistogramQuery(BINS)
        if plan.variant == "trusted"
        else CountQuery(0.5, central(plan).noise_variance)
    )
    first = parse(
        wire.Answer, with_(few).answer(signed(plan), write_query(query, plan=name, round_=0))
    )
    assert first.code == wire.Code.OK
    # Bytes that say the same and are not the same: the version, two bytes, comes last.
    once = write_query(query, plan=name, round_=0)
    again = once[2:] + once[:2]
    # A field that nobody knows is refused before anything is looked up.
    assert (
        parse(wire.Answer, with_(more).answer(signed(plan), once + b"\xf8\x07\x01")).code
        == wire.Code.MALFORMED
    )
    assert (
        parse(wire.Answer, with_(more).answer(signed(plan), again)).code == wire.Code.ALREADY_SPENT
    )
    if plan.variant != "trusted":
        assert counted(ask(with_(more), plan, 0.6, 1))[0] == 100


@pytest.mark.parametrize(
    ("plan", "changes", "code"),
    [
        (TRUSTED, {"exact_counts_may_leave": False}, wire.Code.EXACT_COUNTS_MAY_NOT_LEAVE),
        (NOISED, {"delta_per_campaign": 1e-7}, wire.Code.DELTA_PER_CAMPAIGN),
        (NOISED, {"methods": frozenset({"bits"})}, wire.Code.METHOD_NOT_ALLOWED),
        (NOISED, {"minimum_group": 10_000}, wire.Code.GROUP_TOO_SMALL),
        (changed(NOISED, epsilon=2.0), {}, wire.Code.EPSILON_PER_RECORD),
    ],
)
def test_the_policy_decides(plan: Plan, changes: dict[str, Any], code: int, tmp_path: Path) -> None:
    """Exact counts, deltas, methods, groups and lifetime budgets are the owner's to allow."""
    one = owner(tmp_path, policy=replace(CENTRAL, **changes))
    query = (
        HistogramQuery(BINS)
        if plan.variant == "trusted"
        else CountQuery(0.5, central(plan).noise_variance)
    )
    answer = one.answer(signed(plan), write_query(query, plan=digest(plan.to_bytes()), round_=0))
    assert parse(wire.Answer, answer).code == code


def test_explain_says_what_counts_tell() -> None:
    """In plain words: exact counts are named as such, noised ones with their noise and delta."""
    plan, _ = open_plan(signed(TRUSTED), trusted={PUBLIC}, now=NOW)
    assert "EXACT counts" in explain(plan, POLICY)
    assert "aggregator itself sees" in explain(plan, POLICY)
    assert "refused" in explain(plan, POLICY)
    page = explain(NOISED, CENTRAL)
    assert "Up to 8 times" in page
    assert "1e-06 that bound does not hold" in page
    assert "allowed" in page


def test_counts_that_cannot_be_are_rejected(tmp_path: Path) -> None:
    """Negative exact counts, the wrong number of them, foreign columns: counted under a code, with
    no effect."""
    answer = parse(
        wire.Answer,
        owner(tmp_path, policy=CENTRAL).answer(
            signed(TRUSTED),
            write_query(HistogramQuery(BINS), plan=digest(TRUSTED.to_bytes()), round_=0),
        ),
    )
    good = counted(answer)
    bad: list[dict[str, Any]] = [
        {"body": serialise(wire.Counts(counts=good[:-1].tobytes()))},
        {"body": serialise(wire.Counts(counts=(good - 1).tobytes()))},
        {"body": serialise(wire.Counts(counts=(good + (1 << 41)).tobytes()))},
        {"body": answer.batch.body + b"\x12\x01x"},
        {"ids": b"short"},
        {"round": 1},
        {"plan": b""},
        {"version": 9},
    ]
    messages = [answer]
    for changes in bad:
        altered = wire.Answer()
        altered.CopyFrom(answer)
        for name, value in changes.items():
            setattr(altered.batch, name, value)
        messages.append(altered)

    def draw(mechanism: Mechanism, counts: Histogram, rank: int) -> Release:
        return mechanism.release(counts, rank, SeededEntropy(1))

    outcome: Outcome = run_campaign(
        TRUSTED,
        lambda query: [
            Sent(b"one", message.SerializeToString()) for message in [*messages, answer]
        ],
        draw=draw,
    )
    assert outcome.certificate.n == 2_000
    assert outcome.received["OK"] == 1
    assert outcome.received["DUPLICATE"] == 1
    assert sum(outcome.received.values()) == len(bad) + 2
