import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.cards.clauses import judge
from confide.aggregator.cards.contract import Configuration, Contract
from confide.aggregator.cli.card import differences
from confide.aggregator.quantiles.registry import MECHANISMS
from confide.protocol.cards.card import card_schema, parse_card
from confide.protocol.cards.page import as_html, as_markdown, headline
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput
from confide.protocol.version import CODE_VERSION
from tests.support.cards import (
    CONTRACT,
    GRID,
    KEY,
    ORIGIN,
    OTHER,
    broken,
    campaign,
    command,
    edited,
    edits,
    infeasible,
    make_card,
)
from tests.support.places import ROOT


@pytest.mark.parametrize(("target", "feasible"), [(0.6, 27), (0.7, 18), (0.8, 9)])
def test_the_search_of_the_paper_comes_out_exactly(target: float, feasible: int) -> None:
    """CARD Table 2: of 36 configurations 27, 18 and 9 are feasible, and three are short-listed."""
    formal = make_card(replace(CONTRACT, coverage=target)).formal
    assert len(formal["searched"]) == 36
    assert sum(entry["feasible"] for entry in formal["searched"]) == feasible
    assert len(formal["shortlist"]) == 3


def test_the_example_card_of_the_paper() -> None:
    """CARD section 7: gamma 0.75 at epsilon 8 with 4,000 records is selected, and its level is
    0.749."""
    formal = make_card().formal
    chosen = formal["searched"][formal["selected"]]
    assert (chosen["gamma"], chosen["epsilon_calibration"], chosen["n"]) == (0.75, 8.0, 4000)
    assert chosen["level"] == 0.749
    assert formal["margin"] == 0.049
    assert not broken(make_card(), key=KEY.public_key().public_bytes_raw())


@settings(max_examples=40, deadline=None)
@given(
    mechanism=st.sampled_from(sorted(MECHANISMS)),
    gamma=st.sampled_from([0.3, 0.51, 0.7, 0.9, 0.99, 0.995]),
    n=st.integers(5, 60_000),
    bins=st.sampled_from([2, 16, 100, 1000]),
    epsilon=st.floats(0.1, 10).map(lambda x: round(x, 3)),
    beta=st.sampled_from([1e-9, 1e-3, 0.02]),
    limit=st.none() | st.sampled_from([0.01, 0.2]),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
)
def test_two_independent_computations_agree(
    mechanism: str,
    gamma: float,
    n: int,
    bins: int,
    epsilon: float,
    beta: float,
    limit: float | None,
    adjacency: str,
) -> None:
    """Whatever the mechanism and its parameters, what the search wrote is what the verifier
    computes on its own."""
    contract = replace(
        CONTRACT, coverage=0.6, beta=beta, max_inflation=limit, adjacency=adjacency, delta=1.1e-5
    )
    card = make_card(contract, [Configuration(mechanism, gamma, n, bins, 4.0, 1e-5, epsilon, 1e-6)])
    assert not broken(card)


def test_every_edit_of_a_formal_field_is_caught(tmp_path: Path) -> None:
    """Change any one field of a feasible, an infeasible or a campaign's card: the signature no
    longer holds."""
    for card in (make_card(grid=GRID[-2:]), make_card(*infeasible()), campaign(tmp_path)):
        assert not broken(card)
        for place in edits(card.formal):
            changed = replace(card, formal=edited(card.formal, place))
            try:
                found = parse_card(changed.to_json())
            except BadInput:
                continue
            assert "signature" in broken(found), place


DERIVED = (
    "rank",
    "level",
    "inflation_ranks",
    "feasible",
    "shortlist",
    "selected",
    "decision",
    "margin",
    "failed",
    "total",
    "flags",
    "best",
    "level_after",
    "rest",
    "threshold",
    "epsilon",
    "ones",
)


def test_a_signed_lie_is_named(tmp_path: Path) -> None:
    """Signed again by a forger, an edit of anything that follows from the rest fails the clause it
    breaks."""
    named = 0
    for card in (make_card(grid=GRID[-2:]), make_card(*infeasible()), campaign(tmp_path)):
        for place in edits(card.formal):
            free = place[0] in ("suggestions", "contract") or (
                "rungs" in place and place[-1] == "threshold"
            )
            if free or not set(map(str, place)) & set(DERIVED):
                continue
            forged = replace(card, formal=edited(card.formal, place)).sign(OTHER)
            if place[-1] == "ones" or (place[-1] == "epsilon" and place[0] == "certificate"):
                forged.formal["certificate"]["rungs"][-1]["ones"] = 0
                forged = forged.sign(OTHER)
            try:
                forged = parse_card(forged.to_json())
            except BadInput:
                continue
            found = broken(forged)
            assert found, place
            assert "signature" not in found
            named += 1
    assert named > 60


LOCAL_LIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a published threshold from nothing": (
        {"variant": "published-star"},
        {"n": 0, "threshold": 0.0},
    ),
    "no slack": ({"variant": "published"}, {"slack": 0.0, "level": 0.9}),
    "less slack than n leaves": (
        {"variant": "published", "method": "labels"},
        {"slack": 1e-4, "level": 0.9 - 1e-4},
    ),
    "a variant of another method": (
        {"method": "labels", "variant": "certified"},
        {"variant": "one-shot", "rungs": []},
    ),
    "fewer reports than the rungs count": ({}, {"n": 100}),
    "another score": ({}, {"score": "nonsense"}),
    "another channel": ({}, {"channel": "k-rr"}),
    "no assumptions": ({}, {"assumptions": []}),
    "a threshold a hair lower": ({}, {"threshold": 0.5}),
    "slack where there is none": ({}, {"slack": 0.1}),
}


@pytest.mark.parametrize("lie", list(LOCAL_LIES))
def test_an_issuer_who_contradicts_itself_is_caught(lie: str, tmp_path: Path) -> None:
    """Signed by its own issuer, a campaign's card whose parts do not belong together fails a
    clause."""
    campaign_of, changes = LOCAL_LIES[lie]
    card = campaign(tmp_path, **campaign_of)
    formal = copy.deepcopy(card.formal)
    formal["certificate"] |= changes
    forged = parse_card(replace(card, formal=formal).sign(KEY).to_json())
    assert any(clause.startswith(("certificate", "released")) for clause in broken(forged)), broken(
        forged
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 50_000, "epsilon": 0.01},
        {"delta": 0.5, "epsilon": 0.0},
        {"epsilon": 0.001},
    ],
)
def test_a_lie_about_shuffling_is_caught(changes: dict[str, Any], tmp_path: Path) -> None:
    """More reports than there were, another delta, a smaller epsilon."""
    card = campaign(tmp_path)
    formal = copy.deepcopy(card.formal)
    formal["shuffle"] |= changes
    assert any(
        clause.startswith("shuffle") for clause in broken(replace(card, formal=formal).sign(KEY))
    )


def test_labels_never_claim_amplification(tmp_path: Path) -> None:
    """With probabilities in clear there is none, whatever number is put there; a free text is no
    amplification."""
    card = campaign(tmp_path, method="labels", variant="certified")
    formal = copy.deepcopy(card.formal)
    formal["shuffle"] = {
        "amplification": "if reports are shuffled",
        "n": 100,
        "epsilon": 3.9,
        "delta": 1e-6,
    }
    assert "shuffle" in broken(replace(card, formal=formal).sign(KEY))
    formal["shuffle"] = {"amplification": "epsilon 0.01 by shuffling"}
    with pytest.raises(BadInput, match="accepted"):
        parse_card(replace(card, formal=formal).sign(KEY).to_json())


def test_a_suggestion_may_change_only_what_it_says() -> None:
    """Another contract inside a suggestion, or all of them left out, does not verify."""
    card = make_card(*infeasible())
    forged = copy.deepcopy(card.formal)
    forged["suggestions"][0]["contract"] |= {"coverage": 0.01, "beta": 0.2}
    forged["suggestions"][0]["configuration"]["n"] = 5
    assert "suggestions/0/kind" in broken(replace(card, formal=forged).sign(KEY))
    silent = card.formal | {"suggestions": []}
    assert "suggestions/more records" in broken(replace(card, formal=silent).sign(KEY))


@pytest.mark.parametrize(
    "place",
    [
        ("certificate", "planned", None),
        ("certificate", "rungs", [{"threshold": 0.5, "log_capital": 9.0, "needed": 3.0}]),
        ("certificate", "n", 10**400),
        ("certificate", "delta", None),
        ("certificate", "alpha", 0),
        ("certificate", "epsilon", 1e308),
    ],
)
def test_strange_cards_are_refused_or_named(place: tuple[str, str, Any], tmp_path: Path) -> None:
    """Whatever stands in a card, verifying it ends in clauses or in an unreadable card, never in a
    crash."""
    card = campaign(tmp_path)
    formal = copy.deepcopy(card.formal)
    formal[place[0]][place[1]] = place[2]
    text = replace(card, formal=formal).sign(KEY).to_json()
    try:
        found = parse_card(text)
    except BadInput:
        return
    assert broken(found)


def test_cards_with_two_readings_are_unreadable() -> None:
    """Names that stand twice, numbers beyond floats, floats for integers and bottomless nesting are
    not cards."""
    text = make_card().to_json()
    for wrong in (
        text.replace('"decision": "feasible"', '"decision": "infeasible", "decision": "feasible"'),
        text.replace('"beta": 0.001', '"beta": 1e400'),
        text.replace('"best": 26', '"best": 26.0'),
        "[" * 100_000,
    ):
        assert wrong != text
        with pytest.raises(BadInput, match="accepted"):
            parse_card(wrong)


@pytest.mark.parametrize(("epsilon", "bins"), [(1e-6, 1 << 20), (1e-6, 100)])
def test_verifying_ends_however_small_epsilon_is(epsilon: float, bins: int) -> None:
    """Tables too long to be made are not certified, for the writer and for the verifier alike."""
    grid = [
        Configuration(name, 0.85, 4000, bins, 0.0, 0.0, epsilon)
        for name in ("laplace-counts", "rank-exponential")
    ]
    card = make_card(
        CONTRACT, [*grid, Configuration("rank-exponential", 0.85, 4000, 100, 0.0, 0.0, 1.0)]
    )
    assert not card.formal["searched"][0]["flags"]["certified"]
    assert not broken(card)


@pytest.mark.parametrize("beta", [1e-9, 1e-18, 1e-40])
def test_rare_failures_are_recomputed_too(beta: float) -> None:
    """Far out in the tail of the noise both computations still agree, for one source of noise and
    for many."""
    contract = replace(CONTRACT, beta=beta)
    grid = [
        Configuration("gaussian-search", 0.85, 40_000, 64, 0.0, 0.0, 2.0, 1e-6),
        Configuration("gaussian-search", 0.85, 40_000, 64, 0.0, 0.0, 2.0, 1e-6, "owners", 10),
        Configuration("gaussian-search", 0.85, 40_000, 64, 0.0, 0.0, 2.0, 1e-6, "owners", 200),
    ]
    assert not broken(make_card(contract, grid))


def test_noise_beyond_what_epsilon_asks_for_is_reckoned_with() -> None:
    """A card of owners who add more noise says so, and bounds the inflation by it; less noise is
    not certified."""
    base = Configuration("gaussian-search", 0.85, 40_000, 64, 0.0, 0.0, 2.0, 1e-6, "owners", 10)
    usual, more, less = (
        judge(CONTRACT, replace(base, noise_variance=variance)) for variance in (0, 10_000, 1)
    )
    assert more["inflation_ranks"] > usual["inflation_ranks"]
    assert not less["flags"]["certified"]
    assert not broken(make_card(CONTRACT, [replace(base, noise_variance=10_000)]))


def test_a_forgers_key_is_not_the_one_expected() -> None:
    """Re-signing needs the signer's key: demanded by name, another one fails."""
    forged = replace(make_card(), provenance=ORIGIN | {"issued": "yesterday"}).sign(OTHER)
    assert not broken(forged)
    assert broken(forged, key=KEY.public_key().public_bytes_raw()) == ["signer"]


def test_following_a_suggestion_makes_an_infeasible_contract_feasible() -> None:
    """Each suggested change alone gives a feasible card, and the verifier finds no smaller one."""
    contract, grid = infeasible()
    card = make_card(contract, grid)
    assert card.formal["decision"] == "infeasible"
    assert card.formal["failed"] == ["inflation"]
    kinds = []
    for suggestion in card.formal["suggestions"]:
        followed = make_card(
            Contract(**suggestion["contract"]), [Configuration(**suggestion["configuration"])]
        )
        assert followed.formal["decision"] == "feasible"
        assert not broken(followed)
        kinds.append(suggestion["change"])
    assert kinds == ["more records", "more epsilon"]
    assert not broken(card)
    lavish = copy.deepcopy(card.formal)
    lavish["suggestions"][0]["configuration"]["n"] += 10
    assert broken(replace(card, formal=lavish).sign(KEY)) == ["suggestions/0/change"]


def test_a_target_that_no_level_reaches_is_lowered() -> None:
    """Without a level that high, the failed margin is negative and the best level is suggested as
    the target."""
    card = make_card(replace(CONTRACT, coverage=0.9))
    assert card.formal["margin"] == pytest.approx(-0.051)
    assert [suggestion["change"] for suggestion in card.formal["suggestions"]] == ["lower target"]
    assert card.formal["suggestions"][0]["contract"]["coverage"] == 0.849
    assert "INFEASIBLE" in headline(card)


def test_a_rank_beyond_the_records_is_infeasible() -> None:
    """CARD needs k <= m: 99 % of 50 records is rank 51; 99 records are enough, and suggested."""
    configuration = Configuration("rank-exponential", 0.99, 50, 16, 0.0, 0.0, 1.0)
    contract = replace(CONTRACT, coverage=0.98)
    assert not judge(contract, configuration)["flags"]["rank"]
    card = make_card(contract, [configuration])
    assert card.formal["suggestions"][0]["configuration"]["n"] == 99


def test_mechanisms_without_certificate_are_never_feasible() -> None:
    """DPCP's correction and the midpoint search promise nothing, so no contract accepts them."""
    for mechanism in ("dpcp", "noisy-midpoint"):
        entry = judge(
            replace(CONTRACT, delta=1e-3),
            Configuration(mechanism, 0.85, 4000, 100, 1.0, 1e-5, 4.0, 1e-5),
        )
        assert entry["level"] is None
        assert not entry["feasible"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"variant": "one-shot"},
        {"variant": "published"},
        {"variant": "published-star"},
        {"max_corrupt": 10},
        {"method": "labels", "variant": "certified"},
        {"method": "labels", "variant": "published-star"},
    ],
)
def test_campaigns_issue_cards_that_verify(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A local-DP campaign of any variant gets the same card, decided again from its tallies."""
    card = parse_card(campaign(tmp_path, **changes).to_json())
    assert not broken(card)
    published = changes.get("variant") == "published"
    assert card.formal["decision"] == ("infeasible" if published else "feasible")
    assert ("epsilon" in card.formal["shuffle"]) == (card.formal["certificate"]["method"] == "bits")


def test_only_auditors_see_what_depends_on_the_records() -> None:
    """W and the observed inflation are left out of the public view, and a public card that holds
    them does not verify."""
    card = replace(
        make_card(),
        diagnostic={"coverage": 0.9, "width": 0.04, "observed_inflation": 0.02},
        view="auditor",
    )
    assert not broken(card.sign(KEY))
    assert card.public().diagnostic == {"coverage": 0.9}
    assert not broken(card.public().sign(KEY))
    assert broken(replace(card, view="public").sign(KEY)) == ["view"]


def test_the_published_schema_is_one_and_fits() -> None:
    """The schema is valid, accepts what is written and refuses what is not a card."""
    jsonschema.Draft202012Validator.check_schema(card_schema())
    text = make_card().to_json()
    assert parse_card(text).to_json() == text
    for wrong in (
        "",
        "[]",
        "{}",
        text.replace('"marginal"', '"hopeful"'),
        text.replace("0.749", "NaN"),
        text[:-20],
    ):
        with pytest.raises(BadInput, match="accepted"):
            parse_card(wrong)


def test_a_hostile_name_stays_text() -> None:
    """A name with markup in it is shown, not run, and breaks no table."""
    card = make_card(replace(CONTRACT, name="<script>alert(1)</script> | x"))
    page = as_html(card, verify(card))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "src=" not in page
    assert "http" not in re.sub(r"<svg.*?</svg>", "", page)
    assert "<script" not in as_markdown(card, verify(card))


def test_differences_have_a_direction() -> None:
    """More epsilon is weaker, more coverage is stronger; equal cards differ in nothing."""
    stronger = make_card(replace(CONTRACT, coverage=0.71, epsilon_calibration=9.0))
    lines = differences(make_card(), stronger)
    assert "formal/contract/coverage: 0.7 -> 0.71 (up by 0.01, stronger)" in lines
    assert "formal/contract/epsilon_calibration: 8.0 -> 9.0 (up by 1, weaker)" in lines
    assert differences(make_card(), make_card()) == []


def test_the_version_on_cards_is_the_projects() -> None:
    """Provenance names the version that pyproject.toml states."""
    assert f'version = "{CODE_VERSION}"' in (ROOT / "pyproject.toml").read_text()


CONTRACT_FILE = """
name = "test"
[contract]
coverage = 0.7
beta = 1e-3
epsilon_train = 4.0
epsilon_calibration = 8.0
delta = 1e-5
[grid]
mechanism = ["rank-exponential", "laplace-counts"]
gamma = 0.75
n = [1000, 4000]
bins = 100
epsilon_train = 4.0
delta_train = 1e-5
epsilon_calibration = [2.0, 8.0]
"""


def test_the_command_line_searches_shows_verifies_and_compares(tmp_path: Path) -> None:
    """Exit codes 0, 1 and 2 mean what the help says."""
    (tmp_path / "contract.toml").write_text(CONTRACT_FILE)
    (tmp_path / "key").write_bytes(KEY.private_bytes_raw())
    card, unsigned = tmp_path / "card.json", tmp_path / "unsigned.json"
    done = command("search", tmp_path / "contract.toml", "--out", card, "--key", tmp_path / "key")
    assert (done.exit_code, done.stderr) == (0, "")
    assert (
        command("verify", card, "--key", KEY.public_key().public_bytes_raw().hex()).exit_code == 0
    )
    assert command("search", tmp_path / "contract.toml", "--out", unsigned).exit_code == 0
    refused = command("verify", unsigned)
    assert refused.exit_code == 1
    assert "FAILS  signature" in refused.stdout
    assert command("diff", card, card).exit_code == 0
    assert command("diff", card, unsigned).exit_code in (0, 1)
    assert "## Contract" in command("show", card).stdout
    assert command("show", card, "--html", tmp_path / "card.html").exit_code == 0
    assert "<svg" in (tmp_path / "card.html").read_text()
    assert json.loads(command("schema").stdout) == card_schema()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("coverage = 0.7", "coverage = 1.7"),
        ("beta = 1e-3", "beta = 0.3"),
        ("bins = 100", "bins = 1"),
        ("[grid]", "[net]"),
        ("gamma = 0.75", ""),
        ("laplace-counts", "laplace"),
        ("delta = 1e-5", "delta = -1"),
        ("name", "nome"),
        ('"test"', "test"),
        ("coverage = 0.7", 'coverage = "most"'),
        ("beta = 1e-3", ""),
    ],
)
def test_bad_contracts_are_one_line_and_exit_code_2(tmp_path: Path, old: str, new: str) -> None:
    """What was found, what is accepted and where; no card is written."""
    (tmp_path / "contract.toml").write_text(CONTRACT_FILE.replace(old, new, 1))
    done = command("search", tmp_path / "contract.toml", "--out", tmp_path / "card.json")
    assert done.exit_code == 2, done.stdout
    assert "contract.toml" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "card.json").exists()


@pytest.mark.parametrize("content", [None, "", "{", "{}", "\udcff"])
def test_unreadable_cards_are_exit_code_2(tmp_path: Path, content: str | None) -> None:
    """A missing file, half a file, something else."""
    if content is not None:
        (tmp_path / "card.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    for action in ("verify", "show"):
        done = command(action, tmp_path / "card.json")
        assert done.exit_code == 2
        assert "card.json" in done.stderr
