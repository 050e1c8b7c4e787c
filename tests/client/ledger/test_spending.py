"""What the ledger charges: campaigns, draws that fail or are overtaken, persons, limits."""

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from confide.client.ledger.charges import Cost
from confide.client.ledger.ledger import Ledger
from confide.protocol.errors import BadInput
from tests.support.owners.owners import NOW
from tests.support.owners.spending import ASKED, LIMITS, RECORDS, spend


def test_the_same_name_signed_again_spends_from_the_same_campaign(tmp_path: Path) -> None:
    """A campaign is a name and a key: a second plan of both finds it spent; another name or key
    draws on the lifetime only."""
    ledger = Ledger(tmp_path / "ledger")
    assert spend(ledger) is not None
    assert spend(ledger, replace(ASKED, plan=b"again")) is None
    assert spend(ledger, replace(ASKED, plan=b"other", aggregator=b"o" * 32)) is not None
    assert spend(ledger, replace(ASKED, plan=b"third", campaign="d"), epsilon=0.5) is None
    assert ledger.spent_by_record() == (10, 4.0)


def test_part_of_a_campaign_may_be_spent_by_a_second_plan(tmp_path: Path) -> None:
    """Within the campaign's limit plans of one name add up."""
    ledger = Ledger(tmp_path / "ledger")
    assert [
        spend(ledger, replace(ASKED, plan=bytes([i])), epsilon=0.75) is not None for i in range(3)
    ] == [True, True, False]


def test_nobody_waits_while_an_answer_is_drawn(tmp_path: Path) -> None:
    """Drawing holds no lock: another connection spends, writes and reads meanwhile."""
    slow, quick = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")
    seen = []

    def draw(places: list[int]) -> bytes:
        done = threading.Event()

        def other() -> None:
            mine = Ledger(tmp_path / "ledger")
            seen.append(
                spend(mine, replace(ASKED, plan=b"other", campaign="other"), records=[b"x", b"y"])
            )
            mine.close()
            done.set()

        threading.Thread(target=other, daemon=True).start()
        assert done.wait(20)
        return b"slow"

    assert spend(slow, draw=draw) == b"slow"
    assert seen == [b"[0, 1]"]
    assert quick.spent_by_record() == (12, 2.0)


def test_a_draw_that_was_overtaken_goes_nowhere(tmp_path: Path) -> None:
    """The same query answered meanwhile: its bytes; records spent meanwhile: drawn again without
    them."""
    first, second = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")
    assert (
        spend(first, draw=lambda _: spend(second, draw=lambda _: b"second") and b"first")
        == b"second"
    )
    drawn = []

    def draw(places: list[int]) -> bytes:
        drawn.append(places)
        if len(drawn) == 1:
            assert (
                spend(second, replace(ASKED, plan=b"n", query=b"half"), records=RECORDS[:5]) is None
            )
            assert (
                spend(
                    second,
                    replace(ASKED, plan=b"n", campaign="n", query=b"half"),
                    records=RECORDS[:5],
                )
                is not None
            )
        return b"drawn"

    assert (
        spend(first, replace(ASKED, plan=b"n", campaign="n", query=b"all"), draw=draw) == b"drawn"
    )
    assert drawn == [list(range(10)), list(range(5, 10))]
    assert first.spent_by_record() == (10, 4.0)


def test_a_failed_draw_of_spent_records_is_not_charged_for_others(tmp_path: Path) -> None:
    """A draw that failed is charged as it was drawn; one that was overtaken is drawn again, and
    charged once."""
    first, second = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")
    tries = []

    def draw(places: list[int]) -> bytes:
        tries.append(places)
        if len(tries) == 1:
            spend(second, replace(ASKED, query=b"half"), records=RECORDS[:5])
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        spend(first, draw=draw)
    assert tries == [list(range(10)), list(range(5, 10))]
    assert first.spent_by_record() == (10, 2.0)


def test_a_person_pays_whatever_names_its_records(tmp_path: Path) -> None:
    """Records that spent for themselves bring it to their person, who then pays for all of them;
    nobody changes hands."""
    ledger = Ledger(tmp_path / "ledger")
    pair, limits = [b"one", b"two"], replace(LIMITS, fewest=1)
    ledger.admit(pair)
    given: Any = {
        "cost": Cost(2.0),
        "limits": limits,
        "draw": lambda places: repr(places).encode(),
        "now": NOW,
    }
    assert ledger.answer(ASKED, payers=[(b"one",), (b"two",)], **given) == b"[0, 1]"
    ledger.admit(pair, [b"anna", b"anna"])
    assert ledger.persons() == {b"one": b"anna", b"two": b"anna"}
    assert ledger.spent_by_record() == (1, 4.0)
    later = replace(ASKED, plan=b"later", campaign="later", query=b"later")
    assert ledger.answer(later, payers=[(b"one", b"anna")], **given) is None
    with pytest.raises(BadInput, match="belonged to other persons"):
        ledger.admit(pair, [b"anna", b"ben"])


def test_the_smallest_group_holds_in_every_round(tmp_path: Path) -> None:
    """A later round that only one charged record would answer is refused like a first."""
    ledger = Ledger(tmp_path / "ledger")
    first, second = (replace(ASKED, query=bytes([i]), round_=i, rounds=3) for i in range(2))
    assert spend(ledger, first) is not None
    assert spend(ledger, second, records=[RECORDS[0], b"x", b"y", b"z"]) is None
    assert spend(ledger, second, records=RECORDS[:2]) == b"[0, 1]"


def test_two_signers_of_one_plan_are_both_charged(tmp_path: Path) -> None:
    """What a plan costs counts in the campaign of everybody who signed it."""
    ledger = Ledger(tmp_path / "ledger")
    other = replace(ASKED, aggregator=b"o" * 32, query=b"other")
    assert spend(ledger, records=RECORDS[:5]) is not None
    assert spend(ledger, other, records=RECORDS[5:]) is not None
    for key in (ASKED.aggregator, other.aggregator):
        assert spend(ledger, replace(ASKED, plan=b"next", aggregator=key)) is None


def test_an_answer_leaves_only_within_the_limits_of_now(tmp_path: Path) -> None:
    """Lower limits, of a life or a campaign, or a larger group keep an answer that was drawn under
    others."""
    ledger = Ledger(tmp_path / "ledger")
    spend(ledger)
    assert ledger.may_leave(b"p", b"q", LIMITS)
    for stricter in (
        replace(LIMITS, record=Cost(1.9, 1e-5)),
        replace(LIMITS, campaign=Cost(1.9, 1e-5)),
        replace(LIMITS, fewest=11),
    ):
        assert not ledger.may_leave(b"p", b"q", stricter)


def test_an_answer_keeps_its_time(tmp_path: Path) -> None:
    """The ledger shows when a campaign was last answered."""
    ledger = Ledger(tmp_path / "ledger")
    spend(ledger)
    later = replace(ASKED, query=b"second")
    given: Any = {
        "cost": Cost(1.0),
        "limits": LIMITS,
        "payers": [(b"x",), (b"y",)],
        "draw": lambda _: b"",
    }
    ledger.answer(later, now=NOW + timedelta(days=1), **given)
    assert ledger.campaigns()[0].last == (NOW + timedelta(days=1)).isoformat()
