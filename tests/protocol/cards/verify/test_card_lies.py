"""A card with a false statement does not verify, in any track."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from confide.protocol.cards.card import Card, parse_card
from confide.protocol.cards.words.in_words import headline
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SEEDED
from tests.support.cards.campaign_cards import counted, forged, issued, reported
from tests.support.cards.cards import (
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
from tests.support.cards.central import BINS, NOISED, TRUSTED
from tests.support.cards.full_data import CONTRACT as FULL_DATA
from tests.support.cards.full_data import RELEASED, made
from tests.support.cards.monitors import watched_card
from tests.support.owners.owners import LABEL_PLAN, PLAN, changed


@pytest.fixture(scope="module")
def tracks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    """An honest card of every track."""
    folder = tmp_path_factory.mktemp("cards")
    rng = np.random.default_rng(5)
    edges = tuple(((np.arange(BINS) + 1) / BINS).tolist())
    given = changed(TRUSTED, beta=0.0, grid="given", given_edges=edges)
    averaged, pac = (changed(TRUSTED, beta=0.0, delta=delta) for delta in (0.0, 0.1))
    return {
        "bits": campaign(folder / "bits"),
        "labels": campaign(folder / "labels", method="labels", variant="certified", max_corrupt=3),
        "class labels": campaign(
            folder / "classes", method="labels", variant="class-conditional", max_corrupt=3
        ),
        "published labels": campaign(
            folder / "published", method="labels", variant="published-star", max_corrupt=3
        ),
        "trusted": issued(TRUSTED, counted(TRUSTED, rng)),
        "averaged": issued(averaged, counted(averaged, rng)),
        "PAC": issued(pac, counted(pac, rng)),
        "given grid": issued(given, counted(given, rng)),
        "owner-noised": issued(NOISED, counted(NOISED, rng)),
        "full-data": made(),
        "monitor": watched_card([(300, 268), (300, 200)]),
        "searched": make_card(grid=GRID[-2:]),
        "infeasible": make_card(*infeasible()),
    }


TRACKS = (
    "bits",
    "labels",
    "class labels",
    "published labels",
    "trusted",
    "averaged",
    "PAC",
    "given grid",
    "owner-noised",
    "full-data",
    "monitor",
    "searched",
    "infeasible",
)


def free(track: str, place: tuple[Any, ...]) -> bool:
    """What an issuer alone knows (tallies, names, wishes), or what may be a little different."""
    name, part = place[-1], place[0]
    if track in ("bits", "labels", "class labels"):
        return place == ("certificate", "n") or "rungs" in place
    if track in ("trusted", "averaged", "PAC", "given grid", "owner-noised"):
        return name in ("owners", "complete")
    if track == "full-data":
        known = (("contract", "name"), ("contract", "epsilon"), ("released", "labels"))
        return place in known or part == "profile"
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
        assert "predicts everything" in headline(card)
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
        forged(tracks["labels"], (("certificate", "n"), 5))
    )
    assert "provenance/contributors/of" in broken(
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
