"""Cards that say what is not so do not verify, and cards that say what is so do: for every
track."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.aggregator.cards.contract import Configuration, Contract
from confide.aggregator.cards.full_data import FullDataContract
from confide.protocol.cards.card import Card, parse_card
from confide.protocol.cards.page import headline
from confide.protocol.cards.verify.full_data import Training
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SEEDED
from confide.protocol.privacy.losses import SampledGaussian
from confide.protocol.privacy.profiles import gaussian_delta
from confide.protocol.privacy.zcdp import search_variance
from tests.support.campaign_cards import counted, forged, issued, reported
from tests.support.cards import (
    CONTRACT,
    GRID,
    KEY,
    OTHER,
    broken,
    campaign,
    command,
    edited,
    edits,
    infeasible,
    make_card,
)
from tests.support.central import NOISED, TRUSTED
from tests.support.full_data import CONTRACT as FULL_DATA
from tests.support.full_data import QUANTILE, RELEASED, TRAINING, made
from tests.support.owners import LABEL_PLAN, PLAN, changed

HONEST = 100
# Few, because composing one takes seconds: what else a full-data card has is drawn anew for each.
TRAININGS = (TRAINING, SampledGaussian(1.1, 0.01, 600), SampledGaussian(4.0, 0.08, 50))


@pytest.fixture(scope="module")
def tracks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    """An honest card of every track."""
    folder = tmp_path_factory.mktemp("cards")
    rng = np.random.default_rng(5)
    return {
        "bits": campaign(folder / "bits"),
        "labels": campaign(folder / "labels", method="labels", variant="certified", max_corrupt=3),
        "published labels": campaign(
            folder / "published", method="labels", variant="published-star", max_corrupt=3
        ),
        "trusted": issued(TRUSTED, counted(TRUSTED, rng)),
        "owner-noised": issued(NOISED, counted(NOISED, rng)),
        "full-data": made(),
        "searched": make_card(grid=GRID[-2:]),
        "infeasible": make_card(*infeasible()),
    }


TRACKS = (
    "bits",
    "labels",
    "published labels",
    "trusted",
    "owner-noised",
    "full-data",
    "searched",
    "infeasible",
)


def free(track: str, place: tuple[Any, ...]) -> bool:
    """What an issuer alone knows (tallies, names, wishes), or what may be a little different and
    still true."""
    name, part = place[-1], place[0]
    if track in ("bits", "labels"):
        return part == "shuffle" or place == ("certificate", "n") or "rungs" in place
    if track in ("trusted", "owner-noised"):
        return name in ("owners", "complete")
    if track == "full-data":
        return place in (("contract", "name"), ("contract", "epsilon")) or part == "profile"
    if track in ("searched", "infeasible"):
        unused = ("owners", "noise_variance", "epsilon_train", "delta_train", "bins")
        return name in ("name", "max_inflation") or (part == "searched" and name in unused)
    return False


@pytest.mark.parametrize("track", TRACKS)
def test_every_edit_of_every_formal_field_fails_by_name(
    track: str, tracks: dict[str, Card]
) -> None:
    """Change any one formal field: `signature` fails; signed by somebody else, `signer` does;
    signed by the issuer itself, the clause that the field belongs to, unless the field is what only
    the issuer knows.
    """
    card, named = tracks[track], 0
    expected = KEY.public_key().public_bytes_raw()
    assert broken(parse_card(card.to_json()), key=expected) == []
    for place in edits(card.formal):
        changed = replace(card, formal=edited(card.formal, place))
        try:
            found = parse_card(changed.to_json())
        except BadInput:
            continue
        assert not found.signature_holds, place
        if free(track, place):
            continue
        clauses = broken(found.sign(KEY), key=expected)
        assert clauses, place
        assert not {"signature", "signer"} & set(clauses), place
        named += 1
        if named % 10 == 0:
            assert "signature" in broken(found)
            assert "signer" in broken(found.sign(OTHER), key=expected)
    assert named >= 20


def test_a_delta_below_rounding_is_not_accepted(tracks: dict[str, Card]) -> None:
    """A full-data card with delta 1e-300 is not written, and one that somebody wrote fails; so does
    any below 1e-7."""
    for delta in (1e-300, 1e-12, 9e-8):
        with pytest.raises(BadInput, match="accepts 1e-07 or more"):
            replace(FULL_DATA, delta=delta)
        lie = forged(
            tracks["full-data"],
            (("contract", "delta"), delta),
            (("total", "delta"), delta),
            (("total", "epsilon"), 1.5),
            (("contract", "epsilon"), 1.5),
        )
        assert "contract/delta" in broken(lie)
    assert "total" in broken(
        forged(tracks["full-data"], (("contract", "delta"), 2e-7), (("total", "delta"), 2e-7))
    )


def test_a_client_is_protected_only_where_its_records_are_bounded(tracks: dict[str, Card]) -> None:
    """Privacy of a record is a client's only with one record a client, and the card must say so."""
    for bound in (None, 2):
        with pytest.raises(BadInput, match="records_per_client"):
            replace(CONTRACT, unit="client", records_per_client=bound)
    with pytest.raises(BadInput, match="records_per_client"):
        replace(CONTRACT, records_per_client=1)
    assert not broken(make_card(replace(CONTRACT, unit="client", records_per_client=1)))
    for bound in (None, 2):
        lie = forged(
            make_card(),
            (("contract", "unit"), "client"),
            (("contract", "records_per_client"), bound),
        )
        assert "contract/records_per_client" in broken(lie)
    for track, clause in (("bits", "contract/unit"), ("trusted", "contract/unit")):
        lie = forged(tracks[track], (("contract", "unit"), "client"))
        assert clause in broken(lie), track
    with pytest.raises(BadInput, match="accepted"):
        parse_card(forged(tracks["full-data"], (("contract", "unit"), "client")).to_json())


@pytest.mark.parametrize(
    "track", ["bits", "labels", "published labels", "trusted", "owner-noised", "full-data"]
)
def test_seeded_randomness_is_never_feasible(track: str, tracks: dict[str, Card]) -> None:
    """A card that says its noise was seeded and that it is feasible, or whose flag says otherwise,
    fails; honest, it is a simulation that verifies.
    """
    card = tracks[track]
    seeded = (("released", "randomness"), SEEDED)
    assert {"flags", "decision", "failed"} <= set(broken(forged(card, seeded)))
    flags = card.formal["flags"] | {"randomness": False}
    failed = [*card.formal["failed"], "randomness"]
    honest = forged(
        card, seeded, (("flags",), flags), (("failed",), failed), (("decision",), "simulation")
    )
    assert not broken(honest)
    assert headline(honest).startswith("SIMULATION ONLY")
    for decision in ("feasible", "infeasible"):
        assert broken(forged(honest, (("decision",), decision))) == ["decision"]


def test_writers_say_simulation(tmp_path: Path) -> None:
    """What seeded owners, a seeded release and a seeded training come to is written as a
    simulation."""
    outcome = counted(TRUSTED, np.random.default_rng(1))
    seeded = replace(outcome, certificate=replace(outcome.certificate, randomness=SEEDED))
    cards = [
        campaign(tmp_path, randomness=SEEDED),
        issued(TRUSTED, seeded),
        made(released=replace(RELEASED, randomness=SEEDED)),
    ]
    for card in cards:
        assert (card.formal["decision"], card.formal["failed"]) == ("simulation", ["randomness"])
        assert not broken(parse_card(card.to_json()))


def test_a_trivial_threshold_is_labelled_and_not_feasible(tracks: dict[str, Card]) -> None:
    """Threshold 1 predicts every label: written so, it is infeasible by `informative`; a card that
    calls it feasible fails."""
    few = changed(PLAN, expected_records=20, minimum_reports=0)
    bits = issued(few, reported(few, np.random.default_rng(1), n=20))
    full = made(released=replace(RELEASED, threshold=1.0))
    poor = changed(TRUSTED, epsilon=0.02)
    counts = issued(poor, counted(poor, np.random.default_rng(1), n=400))
    for card in (bits, full, counts):
        assert card.formal["released"]["threshold"] == 1
        assert (card.formal["decision"], card.formal["failed"]) == ("infeasible", ["informative"])
        assert not broken(parse_card(card.to_json()))
        assert "predicts every label" in headline(card)
        flags = card.formal["flags"] | {"informative": True}
        lie = forged(card, (("flags",), flags), (("failed",), []), (("decision",), "feasible"))
        assert {"flags", "failed", "decision"} <= set(broken(lie))
    # The attack on cards of labels: no rung, threshold 1, and feasible.
    place = ("certificate", "threshold"), ("released", "threshold")
    lie = forged(tracks["labels"], (("certificate", "rungs"), []), *((one, 1.0) for one in place))
    assert "flags" in broken(lie)


def test_liars_are_reckoned_with_in_every_published_slack_and_every_rung(
    tracks: dict[str, Card],
) -> None:
    """More reports that may be lies than the slack or the capital was widened for: the clause that
    falls short is named."""
    card = tracks["published labels"]
    plan = changed(LABEL_PLAN, variant="published-star", max_corrupt=500)
    more = (("contract", "max_corrupt"), 500), (("plan",), plan.to_bytes().hex())
    assert "certificate/slack" in broken(forged(card, *more))
    plan = changed(plan, variant="certified")
    more = (("contract", "max_corrupt"), 500), (("plan",), plan.to_bytes().hex())
    rungs = [
        rung | {"needed": rung["needed"] + 1e-5}
        for rung in tracks["labels"].formal["certificate"]["rungs"]
    ]
    assert "certificate/rungs/0/needed" in broken(
        forged(tracks["labels"], *more, (("certificate", "rungs"), rungs))
    )


def test_n_is_tied_to_what_follows_from_it(tracks: dict[str, Card]) -> None:
    """Another n, a little or a lot, contradicts rank, level, share, batch or slack of the same
    card."""
    places: dict[str, tuple[tuple[Any, ...], set[str]]] = {
        "trusted": (("searched", 0, "n"), {"searched/0/inflation_share"}),
        "owner-noised": (("searched", 0, "n"), {"searched/0/inflation_share"}),
        "searched": (("searched", 1, "n"), {"searched/1/inflation_share"}),
        "full-data": (("calibration", "n"), {"calibration/level", "training/batch"}),
        "published labels": (("certificate", "n"), {"certificate/slack"}),
    }
    for track, (place, clauses) in places.items():
        inner = tracks[track].formal
        for name in place:
            inner = inner[name]
        for n in (inner + 1, inner - 1, 10 * inner):  # type: ignore[operator]
            assert clauses <= set(broken(forged(tracks[track], (place, n)))), (track, n)
    assert "certificate/rungs/0/log_capital" in broken(
        forged(tracks["labels"], (("certificate", "n"), 200))
    )
    assert "certificate/n" in broken(forged(tracks["bits"], (("certificate", "n"), 100)))


def test_nobody_signs_with_a_point_of_small_order() -> None:
    """Under such a key a signature without any secret fits every message; it is no signature."""
    card = make_card()
    orders = [0, 1, 2**255 - 20, 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826]
    for y in [*orders, 2**255 - 19, 2**255 - 18]:
        for sign in (0, 1 << 255):
            key = (y | sign).to_bytes(32, "little")
            for point in ((1).to_bytes(32, "little"), key):
                assert "signature" in broken(replace(card, key=key, signature=point + bytes(32)))


def test_an_unsigned_card_verifies_only_when_asked(tmp_path: Path) -> None:
    """Exit code 1 without `--unsigned`; with it 0 and a sentence about what is not shown. A key
    that is given must match."""
    bare, signed = tmp_path / "bare.json", tmp_path / "signed.json"
    bare.write_text(replace(make_card(), key=b"", signature=b"").to_json())
    signed.write_text(make_card().to_json())
    mine, other = (key.public_key().public_bytes_raw().hex() for key in (KEY, OTHER))
    assert command("verify", bare).exit_code == 1
    asked = command("verify", bare, "--unsigned")
    assert asked.exit_code == 0
    assert "Not signed: who issued this card" in asked.stdout
    assert command("verify", bare, "--key", mine).exit_code == 1
    assert command("verify", bare, "--key", mine, "--unsigned").exit_code == 2
    assert command("verify", signed, "--key", mine).exit_code == 0
    wrong = command("verify", signed, "--key", other)
    assert (wrong.exit_code, "FAILS  signer" in wrong.stdout) == (1, True)
    half = tmp_path / "half.json"
    half.write_text(replace(make_card(), signature=bytes(64)).to_json())
    assert command("verify", half, "--unsigned").exit_code == 1


def bits_card(rng: np.random.Generator) -> Card:
    variant = str(rng.choice(["certified", "one-shot", "published", "published-star"]))
    n = int(rng.integers(50, 4_000))
    plan = changed(
        PLAN,
        variant=variant,
        epsilon=float(rng.uniform(0.5, 6)),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        delta=round(float(rng.uniform(0.001, 0.3)), 4),
        expected_records=n,
        minimum_reports=0,
        max_corrupt=int(rng.integers(0, 4)),
    )
    return issued(plan, reported(plan, rng, n=int(n * rng.uniform(0.5, 1.2))))


def labels_card(rng: np.random.Generator) -> Card:
    variant = str(rng.choice(["certified", "published", "published-star"]))
    channel = "k-rr" if variant != "certified" else str(rng.choice(["k-rr", "subset", "unary"]))
    plan = changed(
        LABEL_PLAN,
        variant=variant,
        channel=channel,
        epsilon=float(rng.uniform(0.5, 6)),
        labels=int(rng.integers(2, 12)),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        delta=round(float(rng.uniform(0.001, 0.3)), 4),
        minimum_reports=0,
        max_corrupt=int(rng.integers(0, 20)),
    )
    return issued(plan, reported(plan, rng, n=int(rng.integers(1, 3_000))))


def trusted_card(rng: np.random.Generator) -> Card:
    mechanism = str(rng.choice(["rank-exponential", "laplace-counts", "pps", "above-threshold"]))
    plan = changed(
        TRUSTED,
        mechanism=mechanism,
        bins=int(rng.choice([8, 16, 100, 256])),
        epsilon=round(float(rng.uniform(0.2, 4)), 3),
        beta=round(float(rng.uniform(0.001, 0.02)), 4),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        minimum_reports=0,
    )
    return issued(
        plan, counted(plan, rng, n=int(rng.integers(5, 9_000)), owners=int(rng.integers(1, 5)))
    )


def noised_card(rng: np.random.Generator) -> Card:
    bins, epsilon = int(rng.choice([16, 64, 256])), round(float(rng.uniform(0.3, 4)), 3)
    plan = changed(
        NOISED,
        bins=bins,
        epsilon=epsilon,
        noise_variance=search_variance(bins=bins, epsilon=epsilon, delta=1e-6),
        beta=round(float(rng.uniform(0.001, 0.02)), 4),
        alpha=round(float(rng.uniform(0.05, 0.4)), 3),
        minimum_reports=0,
    )
    return issued(
        plan, counted(plan, rng, n=int(rng.integers(5, 9_000)), owners=int(rng.integers(1, 5)))
    )


def full_data_card(rng: np.random.Generator) -> Card:
    coverage, epsilon = (
        round(float(rng.uniform(0.6, 0.95)), 3),
        round(float(rng.uniform(0.5, 3)), 3),
    )
    contract = FullDataContract("any", coverage, 1e-3, epsilon, float(10 ** rng.uniform(-7, -3)))
    training = TRAININGS[int(rng.integers(len(TRAININGS)))]
    quantile = replace(QUANTILE, epsilon=float(rng.choice([0.25, 1.0])))
    n = int(rng.integers(100, 100_000))
    top = made(contract, training, quantile, n=n, released=replace(RELEASED, threshold=1.0))
    return top if "rank" in top.formal["failed"] else made(contract, training, quantile, n=n)


def searched_card(rng: np.random.Generator) -> Card:
    contract = Contract(
        "any",
        coverage=round(float(rng.uniform(0.5, 0.95)), 3),
        beta=1e-3,
        epsilon_train=1.0,
        epsilon_calibration=round(float(rng.uniform(0.2, 4)), 2),
        delta=1e-5,
        max_inflation=None if rng.random() < 0.5 else round(float(rng.uniform(0.005, 0.2)), 3),
    )
    grid = [
        Configuration(
            mechanism,
            round(float(rng.uniform(0.5, 0.97)), 3),
            int(rng.integers(20, 9_000)),
            64,
            1.0,
            0.0,
            epsilon,
        )
        for mechanism in ("rank-exponential", "laplace-counts", "pps")
        for epsilon in (0.5, round(float(rng.uniform(0.2, 4)), 2))
    ]
    return make_card(contract, grid)


MAKERS: dict[str, Callable[[np.random.Generator], Card]] = {
    "bits": bits_card,
    "labels": labels_card,
    "trusted": trusted_card,
    "owner-noised": noised_card,
    "full-data": full_data_card,
    "searched": searched_card,
}


@pytest.mark.parametrize("track", MAKERS)
def test_a_hundred_honest_cards_of_every_track_verify(track: str) -> None:
    """Whatever the parameters, feasible or not: what an honest writer wrote holds, clause by
    clause."""
    decisions = set()
    for seed in range(HONEST):
        card = parse_card(MAKERS[track](np.random.default_rng([seed, len(track)])).to_json())
        assert broken(card, key=KEY.public_key().public_bytes_raw()) == [], (track, seed)
        decisions.add(card.formal["decision"])
    assert decisions == {"feasible", "infeasible"}


@pytest.mark.parametrize(
    ("training", "epsilon"),
    [
        ((0.5, 1e-4, 1_000_000), 8.0),
        ((1.0, 1e-5, 10_000_000), 2.0),
        ((0.8, 1e-3, 100_000), 8.0),
        ((0.7, 1e-4, 50), 2.0),
    ],
)
def test_cards_of_long_trainings_verify(training: tuple[float, float, int], epsilon: float) -> None:
    """Millions of steps at tiny sampling rates: the verifier's law of the losses is fine enough,
    and its rounding small."""
    contract = replace(FULL_DATA, epsilon=epsilon)
    card = made(contract, SampledGaussian(*training), QUANTILE, n=1_000_000)
    assert not broken(parse_card(card.to_json()))
    assert card.formal["decision"] == "feasible"
    less = forged(card, (("total", "epsilon"), card.formal["total"]["epsilon"] * 0.98))
    assert broken(less) == ["total"]
    noisier = forged(card, (("training", "noise_multiplier"), training[0] * 1.02))
    assert not any(clause.startswith(("profile", "total")) for clause in broken(noisier))
    assert any(
        clause.startswith("profile")
        for clause in broken(forged(card, (("training", "steps"), training[2] * 2)))
    )


def test_the_law_of_ten_million_steps_is_that_of_a_gaussian() -> None:
    """With q sqrt(T) fixed and T large the profile is a Gaussian one with mu = q sqrt(T
    (e^(1/sigma^2) - 1)), by the central limit theorem of Dong, Roth and Su (2022, Corollary 5.4);
    at q = 1e-5 and T = 1e7 to within three parts in a thousand.
    """
    training = Training(1.0, 1e-5, 10_000_000)
    mu = 1e-5 * (1e7 * np.expm1(1.0)) ** 0.5
    for epsilon in (-0.02, 0.0, 0.03, 0.06):
        for added in (True, False):
            assert training.delta(epsilon, added=added) == pytest.approx(
                gaussian_delta(mu, epsilon), rel=3e-3
            )


@pytest.mark.parametrize("variant", ["certified", "published", "published-star"])
def test_the_aggregator_asks_for_as_much_as_the_verifier(variant: str) -> None:
    """However many reports may be lies, slack and capital of an honest card are at or above what
    the verifier computes."""
    for liars in (0, 1, 25, 400, 3_000):
        plan = changed(LABEL_PLAN, variant=variant, max_corrupt=liars, minimum_reports=0)
        assert not broken(issued(plan, reported(plan, np.random.default_rng(liars), n=2_000))), (
            liars
        )
