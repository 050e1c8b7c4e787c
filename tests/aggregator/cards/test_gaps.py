"""Honest cards verify where somebody had nothing to report, or a round went by unanswered."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SeededEntropy
from confide.protocol.methods.base import Batch
from confide.protocol.methods.labels.pairs import PairTerms
from confide.protocol.methods.labels.query import LabelQuery
from confide.protocol.plan import Plan, digest, read_query, round_of
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES, VERSION, serialise
from confide.protocol.wire.packing import write_batch
from tests.support.cards.campaign_cards import issued
from tests.support.cards.cards import broken
from tests.support.owners.owners import LABEL_PLAN, PLAN, changed, owner, signed

PAIRS = PairTerms(variant="class-conditional", epsilon=4.0, delta=0.1, channel="k-rr")


def broken_clauses(
    plan: Plan, folder: Path, *, gap: int | None = None, empty: bool = False
) -> list[str]:
    """The clauses that the card breaks of a campaign of three owners.

    Nobody answers the round `gap`; with `empty`, a fourth owner answers without a report.
    """
    owners = [
        owner(folder / str(seed), seed=seed, entropy=SeededEntropy("gaps", seed))
        for seed in range(3)
    ]

    def ask(query: bytes) -> Iterator[Sent]:
        if round_of(query) == gap:
            return
        for i, one in enumerate(owners):
            yield Sent(bytes([i]), one.answer(signed(plan), query))
        if empty:
            yield Sent(b"empty", nothing(plan, query))

    outcome = run_campaign(plan, ask)
    certificate = replace(outcome.certificate, randomness=OPERATING_SYSTEM)
    return broken(issued(plan, replace(outcome, certificate=certificate)))


def nothing(plan: Plan, query: bytes) -> bytes:
    """An answer of labels that holds no report."""
    name = digest(plan.to_bytes())
    asked, round_ = read_query(query, plan=plan, plan_digest=name)
    assert isinstance(asked, LabelQuery)
    columns: dict[str, NDArray[Any]] = {
        "reports": np.empty(0, dtype=np.int64),
        asked.clear.name: np.empty((0, plan.labels), dtype=np.float32),
    }
    batch = Batch(np.empty((0, ID_BYTES), dtype=np.uint8), columns, seeded=False)
    packed = write_batch(batch, query=asked, plan=name, round_=round_)
    return serialise(wire.Answer(version=VERSION, code=wire.Code.OK, batch=packed))


@pytest.mark.parametrize("variant", ["for-every-owner", "per-owner"])
def test_an_owner_without_reports_is_no_part(variant: str, tmp_path: Path) -> None:
    """It sent an answer, which counts no record: one owner could spoil the card of all others."""
    plan = changed(LABEL_PLAN, variant=variant, part_floor=500)
    assert broken_clauses(plan, tmp_path, empty=True) == []


def test_a_stage_of_pairs_that_nobody_answered_is_no_stage(tmp_path: Path) -> None:
    """One timeout is enough for that."""
    assert broken_clauses(changed(PLAN, terms=PAIRS), tmp_path, gap=4) == []
