from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aggregator.campaigns import run_campaign
from protocol.campaign import Plan
from protocol.card import PUBLIC, parse_card
from protocol.verify import verify
from tests.owners import LABEL_PLAN, PLAN, asking, owner, signed
from tests.servers import Place, contribution, eventually, plan_now, together


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "aggregator")
    yield made
    made.close()


def undisturbed(plan: Plan, folder: Path, *, owners: int, n: int) -> Any:
    """The same seeded owners, asked in process."""
    folder.mkdir()
    made = [owner(folder / str(i), seed=i, n=n, now=lambda: datetime.now(UTC)) for i in range(owners)]
    return run_campaign(plan, asking(signed(plan), made)).certificate


@pytest.mark.parametrize("base", [PLAN, LABEL_PLAN], ids=lambda plan: plan.method)
def test_a_campaign_over_the_network_is_the_one_in_process(base: Plan, place: Place, tmp_path: Path) -> None:
    plan = plan_now(base)
    expected = undisturbed(plan, tmp_path / "in-process", owners=3, n=2_000)
    campaign = place.campaign(plan, owners=3)
    server = place.serve()
    tokens = [place.enrol(f"owner {i}") for i in range(3)]
    left = together(3, lambda i: contribution(server.access(tokens[i]), plan, tmp_path / f"o{i}", seed=i, n=2_000).watch())
    assert [part.reports for part in left] == [2_000] * 3
    eventually(lambda: place.store.campaign(campaign).state == "calibrated")
    found = parse_card(place.store.card(campaign, PUBLIC) or "")
    assert found.formal["certificate"]["threshold"] == expected.threshold
    assert found.formal["certificate"]["n"] == 6000
    assert all(f.holds for f in verify(found))
    assert server.stop() == 0
    print(server.log.read_text())
