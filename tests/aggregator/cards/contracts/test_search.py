import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from confide.aggregator.cards.contracts.clauses import judge
from confide.aggregator.cards.contracts.contract import Configuration, Contract
from confide.aggregator.quantiles.registry import MECHANISMS
from confide.protocol.cards.words.in_words import headline
from tests.support.cards.cards import CONTRACT, KEY, ORIGIN, OTHER, broken, infeasible, make_card


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


def test_a_target_that_no_level_reaches_needs_a_higher_gamma_or_is_lowered() -> None:
    """Without a level that high, the failed margin is negative; the gamma whose level is the target
    is suggested, and the best level as the target. A gamma beyond the least is no suggestion."""
    card = make_card(replace(CONTRACT, coverage=0.9))
    assert card.formal["margin"] == pytest.approx(-0.051)
    gamma, target = card.formal["suggestions"]
    assert (gamma["change"], target["change"]) == ("higher gamma", "lower target")
    assert gamma["configuration"]["gamma"] == 0.901
    assert target["contract"]["coverage"] == 0.849
    assert "NOT GUARANTEED" in headline(card)
    assert not broken(card)
    lavish = copy.deepcopy(card.formal)
    lavish["suggestions"][0]["configuration"]["gamma"] = 0.91
    assert broken(replace(card, formal=lavish).sign(KEY)) == ["suggestions/0/change"]
    silent = copy.deepcopy(card.formal)
    del silent["suggestions"][0]
    assert broken(replace(card, formal=silent).sign(KEY)) == ["suggestions/higher gamma"]


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
