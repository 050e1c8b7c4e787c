"""Every campaign with a promise for parts of the records runs on arrays, to a verified card."""

from typing import Any

import numpy as np
import pytest

import confide
from confide.aggregator.procedures.owners.every_owner_bits import SEARCH_SHARES, STAGE_SHARES
from confide.protocol.cards.card import parse_card
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods import parts
from confide.protocol.methods.owner_terms import GROUP_VARIANTS, OWNER_VARIANTS
from confide.simulation.arrays.calibrate import calibrate_in_order
from confide.simulation.arrays.records import read_records
from tests.support.cards.calibrated import calibrated
from tests.support.cards.cards import KEY, broken
from tests.support.truth.known import label_population

N, K = 4_000, 4
PROBS, LABELS = label_population(N, K, np.random.default_rng(1), ties=False)
SITES = np.repeat(["east", "north", "south", "west"], [60, 1_940, 1_000, 1_000])
SITES = SITES[np.random.default_rng(2).permutation(N)]
PARTS: dict[str, dict[str, Any]] = {
    **{
        f"{method}:{variant}": {"owners": SITES, "owner_floor": 100}
        for method in ("bits", "labels")
        for variant in OWNER_VARIANTS
    },
    **{
        f"{method}:{variant}": {"groups": SITES, "group_floor": 100}
        for method in ("bits", "labels")
        for variant in GROUP_VARIANTS
    },
    "labels:class-conditional": {},
    "pairs:class-conditional": {},
    "central:trusted by class": {"by": "class"},
    "central:trusted by group": {"by": "group", "groups": SITES},
    "central:owner-noised by class": {"by": "class", "owners": 2},
    "central:owner-noised by group": {"by": "group", "groups": SITES, "owners": 2},
}


@pytest.mark.parametrize("name", PARTS)
def test_a_promise_for_parts_ends_in_a_card_that_verifies(name: str) -> None:
    """Each part has a threshold below 1, or a reason why it has not."""
    asked: dict[str, Any] = {"method": name.partition(" ")[0], "epsilon": 8.0} | PARTS[name]
    made = calibrated(PROBS, LABELS, **asked)
    card = parse_card(made.card(KEY).to_json())
    assert broken(card, key=KEY.public_key().public_bytes_raw()) == []
    strata = made.certificate.strata
    of_classes = "class" in name
    assert len(strata) == (K if of_classes else 4)
    assert min(part.threshold for part in strata) < 1
    assert all((part.reason is None) == (part.threshold < 1) for part in strata)
    if name.startswith(("bits:", "labels:")) and not of_classes:
        # The first by name, for owners and for groups.
        assert strata[0].reason is not None
        assert strata[0].reason.startswith("too few reports")
        assert [part.covered for part in strata] == [False, True, True, True]


@pytest.mark.parametrize("mixture", [{}, {"mixture": "planned"}], ids=["owners", "mixture"])
@pytest.mark.parametrize("crowded", range(5))
def test_too_many_owners_of_one_round_end_in_a_card_that_verifies(
    crowded: int, mixture: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tally keeps none of them apart, so no owner is covered, and no planned mixture known."""
    monkeypatch.setattr(parts, "MOST_PARTS", 4)
    method = "bits:certified" if mixture else "bits:for-every-owner"
    settings = mixture or {"owner_floor": 100}
    asked = np.cumsum([0, *SEARCH_SHARES, *STAGE_SHARES])[crowded : crowded + 2]
    place = (np.arange(N) + 0.5) / N
    many = (asked[0] < place) & (place < asked[1])
    owners = np.where(many, np.arange(N) % 5, np.arange(N) % 4).astype(str)
    made = calibrate_in_order(
        read_records(PROBS, LABELS, "hps"),
        SeededEntropy(5),
        method=method,
        epsilon=8.0,
        owners=owners,
        **settings,
    )
    assert broken(parse_card(made.card(KEY).to_json())) == []
    if not mixture:
        assert [(one.name, one.covered) for one in made.certificate.strata] == [("all", False)]
    elif made.certificate.trivial:
        assert "tells no owners apart" in str(made.certificate.reason)


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_measured(name: str) -> None:
    """On records that took no part: a row a part, whose coverages make up that of all."""
    asked: dict[str, Any] = {"method": name.partition(" ")[0], "epsilon": 8.0} | PARTS[name]
    found = confide.evaluate(PROBS, LABELS, n=3_000, trials=1, seed=1, **asked)
    (one,) = found.trials
    names = [str(k) for k in range(K)] if "class" in name else sorted({*SITES.tolist()})
    assert [part.name for part in one.parts] == names
    counts = np.array([part.records for part in one.parts])
    assert counts.sum() == N - 3_000
    assert one.coverage == pytest.approx(counts @ [p.coverage for p in one.parts] / counts.sum())
    assert one.calibration.certificate.strata
