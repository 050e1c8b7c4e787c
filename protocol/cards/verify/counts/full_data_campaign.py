"""Verify the card of a campaign that calibrated on the records that trained its model.

Nothing here is shared with the code that calibrates. What a card says of its plan and of the
training's plan is compared in `plan.py` and `chain.py`; here its numbers are computed again.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.chain import added_epsilon, replaced_epsilon
from confide.protocol.cards.verify.counts import recompute
from confide.protocol.cards.verify.findings import CLOSE, Finding, number, same
from confide.protocol.cards.verify.profiles import LEAST_DELTA, RELATIVE, Training
from confide.protocol.cards.verify.released import (
    decided,
    on_grid,
    released_flags,
    released_score,
)
from confide.protocol.certificate import (
    DPCP_ASSUMPTIONS,
    DROPOUTS,
    HONEST_COUNTS,
    HONEST_TRAINING,
    LARGE_N,
    PAIRS,
)

_BUFFER = 10
_OWNERS = "-owner-noised"
_TOP = "without a rank only the top of the grid can be released"


@dataclass(frozen=True)
class Claimed:
    """The numbers that a rule starts from, as the card and its plan state them."""

    formal: Layer

    @property
    def alpha(self) -> Fraction:
        return 1 - number(self.formal["contract"]["coverage"])

    @property
    def beta(self) -> Fraction:
        return number(self.formal["contract"]["beta"])

    @property
    def n(self) -> int:
        n: int = self.formal["calibration"]["n"]
        return n

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(point["epsilon"], point["delta"]) for point in self.formal["profile"]]

    @property
    def dp_sgd(self) -> tuple[float, float, int]:
        terms = self.formal["training"]
        return terms["noise_multiplier"], terms["sampling_rate"], terms["steps"]

    @property
    def training_delta(self) -> float:
        delta: float = self.formal["chain"]["delta_train"]
        return delta


@dataclass(frozen=True)
class Derived:
    """What a rule derives from these numbers: the rank or None, the level, and the promise."""

    status: str
    rank: int | None
    level: float
    miss: float | None = None
    promised: float | None = None
    floor: float | None = None
    never: float | None = None
    buffer: int = 0
    buffer_is: str | None = None
    bounded: bool = True
    assumes: tuple[str, ...] = ()


def _certified(claim: Claimed) -> Derived:
    """The best point of the profile; one more rank for the record that is added."""
    room = float(claim.alpha - claim.beta)
    miss = max(math.exp(-epsilon) * (room - delta) for epsilon, delta in claim.points)
    stated = claim.formal["calibration"]["miss"]
    # The rank follows from the stated number, which is compared with the one computed here.
    rank = math.ceil((1 - Fraction(stated)) * (claim.n + 1)) + 1
    return Derived(
        "certified",
        rank if rank <= claim.n else None,
        stated - 1 / (claim.n + 1),
        miss=max(0.0, miss),
        promised=claim.formal["contract"]["coverage"],
    )


def _dpcp(claim: Claimed) -> Derived:
    """One point of the profile; the mechanism aims 2/epsilon ranks above the rank."""
    (epsilon, delta), alpha = claim.points[0], float(claim.alpha)
    level = math.exp(-epsilon) * (alpha - delta)
    rank = math.ceil(claim.n * (1 - Fraction(level)))
    above = math.ceil(2 / Fraction(claim.formal["calibration"]["epsilon"]))
    return Derived(
        "conditional on assumptions",
        rank if rank + above < claim.n else None,
        level,
        bounded=False,
        assumes=(DPCP_ASSUMPTIONS,),
    )


def _nominal(claim: Claimed, buffer: int) -> int | None:
    rank = math.ceil((claim.n + 1) * (1 - claim.alpha))
    return rank if rank + buffer <= claim.n else None


def _scp_f(claim: Claimed) -> Derived:
    alpha, beta = float(claim.alpha), float(claim.beta)
    above = alpha + beta - alpha * beta
    bound = min(math.exp(epsilon) * above + delta for epsilon, delta in claim.points)
    _, rate, steps = claim.dp_sgd
    drawn = 1 - (1 - rate) ** steps
    floor = max(0.0, 1 - bound)
    return Derived(
        "floors only",
        _nominal(claim, _BUFFER),
        alpha,
        promised=floor,
        floor=floor,
        never=max(0.0, (1 - beta) * (1 - alpha - 3 * drawn - 1 / (claim.n + 1))),
        buffer=_BUFFER,
        buffer_is="heuristic buffer",
    )


def _scp_a(claim: Claimed) -> Derived:
    return Derived(
        "asymptotic only",
        _nominal(claim, 0),
        float(claim.alpha),
        bounded=False,
        assumes=(LARGE_N,),
    )


RULES: dict[str, Callable[[Claimed], Derived]] = {
    "certified": _certified,
    "dpcp": _dpcp,
    "scp-f": _scp_f,
    "scp-a": _scp_a,
}


def full_data_campaign(formal: Layer) -> Iterator[Finding]:
    """Check every clause of the card of such a campaign."""
    claim, found = Claimed(formal), formal["calibration"]
    rule = found["variant"].removesuffix(_OWNERS)
    noised = "owners" if found["variant"].endswith(_OWNERS) else "aggregator"
    yield same("calibration/noised_by", found["noised_by"], noised)
    yield from _profile(claim, rule)
    derived = RULES[rule](claim)
    for name, value in {"rank": derived.rank, "buffer": derived.buffer}.items():
        yield same(f"calibration/{name}", found[name], value)
    for name, number_ in {"miss": derived.miss, "level": derived.level}.items():
        yield _close(f"calibration/{name}", found[name], number_)
    yield from _promise(formal["promise"], derived)
    yield from _inflation(claim, derived)
    yield from _total(claim)
    flags = {
        "certified": rule == "certified",
        "rank": derived.rank is not None,
        **released_flags(formal["released"]),
    }
    yield from decided(formal, flags, [name for name, value in flags.items() if not value])
    yield from released_score(formal)
    yield from _released(formal, possible=derived.rank is not None)
    yield same("margin", formal["margin"], 0.0 if flags["certified"] else None)


def _profile(claim: Claimed, rule: str) -> Iterator[Finding]:
    """Check the points: each delta must be at least what this training has at that epsilon.

    DPCP's one point is that of Renyi divergences; a search without offset uses none.
    """
    noise, rate, steps = claim.dp_sgd
    count = len(claim.points)
    if rule == "dpcp":
        least = added_epsilon(noise=noise, rate=rate, steps=steps, delta=claim.training_delta)
        epsilon, delta = claim.points[0]
        holds = count == 1 and delta == claim.training_delta and epsilon >= least * (1 - CLOSE)
        yield Finding("profile/0", holds, f"epsilon {least:.6g} at delta {claim.training_delta:g}")
        return
    yield Finding("profile", bool(count) == (rule != "scp-a"), "points only where a rule uses them")
    training = Training(noise, rate, steps)
    for i, (epsilon, delta) in enumerate(claim.points):
        least = training.delta(epsilon, added=True)
        holds = delta >= max(LEAST_DELTA, least * (1 - RELATIVE))
        yield Finding(f"profile/{i}", holds, f"delta at epsilon {epsilon} is at least {least:.6g}")


def _promise(found: Layer, derived: Derived) -> Iterator[Finding]:
    yield same("promise/status", found["status"], derived.status)
    yield same("promise/transfer", found["transfer"], "add-remove")
    yield same("promise/buffer_is", found["buffer_is"], derived.buffer_is)
    assumed = [PAIRS, DROPOUTS, HONEST_COUNTS, HONEST_TRAINING, *derived.assumes]
    yield same("promise/assumptions", found["assumptions"], assumed)
    yield _close("promise/level", found["level"], derived.promised)
    yield _close("promise/black_box_floor", found["black_box_floor"], derived.floor)
    yield _close("promise/never_selected_bound", found["never_selected_bound"], derived.never)


def _close(clause: str, found: Any, expected: float | None) -> Finding:
    """Compare numbers that both sides computed with exponentials; None is compared as it is."""
    if found is None or expected is None:
        return same(clause, found, expected)
    close = abs(found - expected) <= 1e-9 * max(abs(expected), 1e-3)
    return Finding(clause, close, f"the card says {found}, recomputed {expected}")


def _inflation(claim: Claimed, derived: Derived) -> Iterator[Finding]:
    """Check by how many ranks the threshold may be too high, if every owner answered."""
    found, complete = claim.formal["calibration"], claim.formal["released"]["complete"]
    bound: recompute.Bound = None
    if derived.rank is not None and derived.bounded:
        names = ("mechanism", "noised_by", "bins", "n", "owners", "noise_variance")
        entry = {name: found[name] for name in names} | {
            "epsilon_calibration": found["epsilon"],
            "delta_calibration": found["delta"],
        }
        beta = claim.formal["contract"]["beta"]
        bound = recompute.inflation(entry, beta=beta, adjacency="replace-one", rank=derived.rank)
    yield Finding(
        "calibration/mechanism",
        bound is not recompute.NOT_CERTIFIED,
        "the threshold is at or above the rank but for the probability beta",
    )
    if isinstance(bound, int):
        bound += derived.buffer
    may_miss = found["noised_by"] == "owners" and not complete
    yield same("calibration/inflation_ranks", found["inflation_ranks"], None if may_miss else bound)
    yield same("released/complete", complete, found["inflation_ranks"] is not None)


def _total(claim: Claimed) -> Iterator[Finding]:
    """Check what training and calibration cost together: the sum of what owners charge."""
    contract, found = claim.formal["contract"], claim.formal["calibration"]
    noise, rate, steps = claim.dp_sgd
    least = replaced_epsilon(noise=noise, rate=rate, steps=steps, delta=claim.training_delta)
    total = claim.formal["total"]
    paid = total["epsilon"] - found["epsilon"]
    yield Finding(
        "total/epsilon",
        paid >= least * (1 - CLOSE),
        f"at least {least + found['epsilon']:.6g}, training and calibration",
    )
    yield same("total/composition", total["composition"], "sum, as owners charge it")
    yield same("total/delta", total["delta"], claim.training_delta + found["delta"])
    paid_for = claim.formal["chain"]["epsilon_train"] + found["epsilon"]
    yield same("total/epsilon", total["epsilon"], paid_for)
    for name in ("epsilon", "delta"):
        yield same(f"contract/{name}", contract[name], total[name])


def _released(formal: Layer, *, possible: bool) -> Iterator[Finding]:
    released, found = formal["released"], formal["calibration"]
    yield from on_grid(released, found)
    yield Finding("released", possible or released["bin"] == found["bins"] - 1, _TOP)
