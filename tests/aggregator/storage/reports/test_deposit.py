from confide.aggregator.storage.database import writing
from confide.aggregator.storage.reports.deposit import store_all
from confide.aggregator.storage.reports.ids import StoredIds
from confide.aggregator.storage.reports.submissions import Packed, Submission
from tests.support.servers.servers import Place, plan_now


def test_of_two_batches_with_one_name_the_first_is_stored(place: Place) -> None:
    """Names of batches are no secret, so an owner can make two of one name: the second is not
    stored, and not counted."""
    plan = plan_now(variant="one-shot")
    campaign, known = place.campaign(plan), StoredIds()
    place.enrol("owner")
    place.store.ask(campaign, 0, b"query", now=0.0, seconds=1.0)

    def store(first: int, names: list[bytes]) -> list[int]:
        packed = [
            Packed(name, 1, bytes([number]), bytes([number]) * 16)
            for number, name in enumerate(names, start=first)
        ]
        with writing(place.store.engine).begin() as db:
            stored = store_all(db, [Submission(campaign, 0, 1, packed)], known)
        return [one.accepted for one in stored]

    assert store(1, [b"a", b"b"]) == [2]
    assert store(3, [b"b", b"c", b"c"]) == [1]
    answers = sorted(answer for _, answer in place.store.answers(campaign, 0))
    assert answers == [b"\x01", b"\x02", b"\x04"]
