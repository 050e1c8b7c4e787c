"""The verifier's levels of bits are those of the search, stage for stage, wherever it asks."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from confide.aggregator.procedures.bits.one_shot import ladder_below_1
from confide.aggregator.procedures.certify import MOST_UNEQUAL, Search, null_rate
from confide.aggregator.procedures.owners import every_owner_bits
from confide.protocol.cards.verify.local import bits as verify_bits
from confide.protocol.cards.verify.local import stages as verify_stages
from confide.protocol.certificate import IID, MIXTURE, PLANNED_MIXTURE, BitRung
from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bit_rounds import SCHEDULES, rounds_for

ALPHA = 0.1
BIT, PLANNED, LIES = Bit(epsilon=4.0), 1_200, 2
KINDS = ["certified", "planned mixture", "for-every-owner", "per-owner"]
# Thresholds between which a search goes up and down, again and again.
ASKED = np.array([0.5, 0.6, 0.7, 0.8, 0.9])


def walked(kind: str, seed: int) -> tuple[dict[str, Any], Search]:
    """What a card would say of a search that asks at random, and the search.

    An owner may skip stages; one that is tested in one round goes down until it fails.
    """
    rng, m0 = np.random.default_rng([seed, KINDS.index(kind)]), null_rate(BIT, ALPHA)
    delta = float(rng.choice([0.02, 0.1, 0.4]))
    search = Search(delta=delta, m0=m0, max_corrupt=LIES, unequal=kind == "planned mixture")
    owner = kind == "for-every-owner"
    smallest = int(rng.choice([0, *(least for least, _ in SCHEDULES), 170]))
    shares = every_owner_bits.STAGE_SHARES if owner else rounds_for(smallest).stages
    sizes, rungs = [int(PLANNED * share) for share in shares], []
    one_round = kind == "per-owner"
    asked = ladder_below_1(None) if one_round else ASKED
    for i, size in enumerate(sizes):
        below = asked[search.certified > asked]
        if search.finished or not len(below) or (owner and rng.random() < 0.3):
            continue
        q = float(below[-1] if one_round else rng.choice(below))
        n = max(1, size + int(rng.integers(-20, 20)))
        ones = int(rng.binomial(n, min(1.0, m0 + 0.06 * rng.random())))
        rungs.append(search.test(q, n=n, ones=ones, rest=0 if one_round else sum(sizes[i + 1 :])))
    return {
        "variant": "certified" if kind == "planned mixture" else kind,
        "alpha": ALPHA,
        "delta": delta,
        "level": 1 - ALPHA,
        "slack": None,
        "epsilon": BIT.epsilon,
        "planned": PLANNED,
        "threshold": search.certified,
        "assumptions": [IID, PLANNED_MIXTURE if kind == "planned mixture" else MIXTURE],
        "rungs": [vars(rung) for rung in rungs],
        **({"smallest_owner": smallest} if smallest else {}),
    }, search


def failed(found: dict[str, Any]) -> list[str]:
    return [one.clause for one in verify_bits.evidence(found, LIES) if not one.holds]


@pytest.mark.parametrize("kind", KINDS)
def test_the_verifier_finds_the_levels_of_the_search(kind: str) -> None:
    """On a hundred random walks, with passes, failures and thresholds asked again."""
    seen: set[str] = set()
    for seed in range(100):
        found, search = walked(kind, seed)
        assert failed(found) == []
        rungs = [BitRung(**rung) for rung in found["rungs"]]
        seen |= {"passed" for rung in rungs if rung.passed}
        seen |= {"carried" for rung in rungs if 0 < rung.level_after < 1}
        seen |= {"lower" for a, b in pairwise(rungs) if b.level < a.level}
        seen |= {"waits" for level in search._levels if level == 1}
        if kind == "planned mixture":
            assert all(rung.level <= MOST_UNEQUAL or rung.level == 1 for rung in rungs)
    assert seen >= ({"passed"} if kind == "per-owner" else {"passed", "carried", "lower"})
    # Somewhere a threshold has passed, and one below it, asked with it, has not.
    assert "waits" in seen or kind in ("per-owner", "for-every-owner")


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize(
    "wrong",
    [
        {"MOST_UNEQUAL": 0.3},
        {"KEPT": 0.1},
        {"PART_SHARES": (0.15, 0.2, 0.4)},
        {"STAGES": verify_stages.STAGES[:2]},
    ],
)
def test_a_search_of_other_rules_is_named(
    kind: str, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels by other rules than the verifier's fail, in the kinds that these rules concern."""
    for name, value in wrong.items():
        module = verify_stages if "STAGES" in name or "SHARES" in name else verify_bits
        monkeypatch.setattr(module, name, value)
    concerned = {
        "MOST_UNEQUAL": ["planned mixture"],
        "KEPT": KINDS[:3],
        "PART_SHARES": ["for-every-owner"],
        "STAGES": KINDS[:2],
    }[next(iter(wrong))]
    found = any(failed(walked(kind, seed)[0]) for seed in range(30))
    assert found == (kind in concerned)


def test_unequal_answers_are_not_given_the_levels_of_equal_ones() -> None:
    """A planned mixture whose stages are tested as if answers were alike is named."""
    lies = 0
    for seed in range(30):
        found, _ = walked("certified", seed)
        lies += bool(failed(found | {"assumptions": [IID, PLANNED_MIXTURE]}))
    assert lies >= 25
