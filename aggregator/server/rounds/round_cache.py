"""Campaigns and their rounds, held in memory: batches are checked without reading the disk."""

import threading
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from confide.aggregator.campaigns.admission import Checked, check_answer
from confide.aggregator.campaigns.allowance import (
    UNLIMITED,
    Allowance,
    allowance,
    most_in_campaign,
)
from confide.aggregator.storage.enrolment import Owner
from confide.aggregator.storage.reports.submissions import Packed
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import ENOUGH, OPEN, Campaign, Round
from confide.protocol.errors import BadInput, Refused
from confide.protocol.methods.base import Query
from confide.protocol.plan import read_query
from confide.protocol.shuffling import Shuffling
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import ID_BYTES, parse

# The key is public: an owner that makes two batches with the same name loses the second one, and no
# other owner is affected.
_GMAC = AESGCM(bytes(16))


@dataclass(frozen=True)
class CachedCampaign:
    """A campaign with its rounds, and what the last of them has received."""

    campaign: Campaign
    rounds: tuple[Round, ...] = ()
    # The last query, and its bytes, while the campaign is open.
    query: Query | None = None
    asked: bytes = b""
    owners: int = 0
    reports: int = 0
    # Who alone may hand over the reports; None where owners send them, as they do to a shuffler.
    shuffling: Shuffling | None = None

    @property
    def last(self) -> Round | None:
        return self.rounds[-1] if self.rounds else None

    @property
    def taking(self) -> bool:
        return self.campaign.state == OPEN and self.last is not None and self.last.closed is None

    @property
    def whole(self) -> bool:
        """Whether an owner answers a round as a whole, and so once."""
        return self.campaign.plan.terms.rounds > 0

    def allowance(self, owner: Owner) -> Allowance:
        """The most that the last round, and the campaign, take from an owner.

        A shuffler has signed how many reports it hands over, and has bounded those of its owners.
        """
        if self.shuffling is not None:
            return UNLIMITED
        if self.query is None:
            return Allowance(0)
        plan, rounds = self.campaign.plan, len(self.rounds)
        return allowance(plan, self.query, rounds=rounds, records=owner.records)

    def admit(self, answer: bytes, owner: Owner) -> tuple[Packed, bool]:
        """The answer as a batch to store, and whether it was drawn from a seed.

        An answer that cannot be taken is refused with a code.
        """
        if self.last is None or self.query is None or self.campaign.state != OPEN:
            raise Refused(wire.Code.CLOSED)
        try:
            most = most_in_campaign(self.campaign.plan, owner.records)
            found = check_answer(
                answer,
                query=self.query,
                plan=self.campaign.digest,
                round_=self.last.number,
                most=most,
                shuffling=self.shuffling,
            )
        except Refused as refused:
            if refused.code == wire.Code.LATE and self._had_enough(
                parse(wire.Answer, answer).batch.round
            ):
                raise Refused(wire.Code.SURPLUS) from None
            raise
        return _packed(answer, found), found.seeded

    def earlier(self, answer: bytes) -> tuple[int, Packed]:
        """Read an answer to an earlier round; return the number of the round, and the answer.

        It is refused if there was no such round. Its content is not checked: if it is stored, it
        was checked then, and if not, nothing will store it now.
        """
        batch = parse(wire.Answer, answer).batch
        if batch.round >= len(self.rounds):
            raise Refused(wire.Code.WRONG_ROUND)
        return batch.round, _packed(answer, Checked(len(batch.ids) // ID_BYTES, batch.seeded))

    def _had_enough(self, number: int) -> bool:
        return number < len(self.rounds) and self.rounds[number].because == ENOUGH


def _packed(answer: bytes, found: Checked) -> Packed:
    # The ids are a view into the answer: a copy would double the memory.
    start = answer.find(found.ids)
    return Packed(
        _name(answer), found.reports, answer, memoryview(answer)[start : start + len(found.ids)]
    )


def _name(answer: bytes) -> bytes:
    """A digest that tells the batches of one owner apart, five times as fast as SHA-256."""
    return _GMAC.encrypt(bytes(12), b"", answer)


def declined(answer: bytes) -> str | None:
    """The code with which an owner declines to answer, if the answer is a refusal."""
    message = parse(wire.Answer, answer)
    return (
        wire.Code.Name(message.code)
        if message.code != wire.Code.OK and message.code in wire.Code.values()
        else None
    )


class RoundCache:
    """Every campaign, as it was when the store was last read."""

    def __init__(self, store: Store, *, collecting: bool = False) -> None:
        """`collecting` is a shuffler's: there, owners of shuffled campaigns send sealed reports."""
        self._store, self._collecting = store, collecting
        self._campaigns: dict[str, CachedCampaign] = {}
        self._refreshing = threading.Lock()

    def refresh(self) -> bool:
        """Read the store again; True if anything has changed.

        One thread at a time reads, so that a newer copy is never replaced by an older one.
        """
        with self._refreshing:
            read = ((one.id, self._read_if_known(one)) for one in self._store.campaigns())
            found = {name: campaign for name, campaign in read if campaign is not None}
            changed, self._campaigns = found != self._campaigns, found
            return changed

    def knows(self, campaign: str) -> bool:
        return campaign in self._campaigns

    def campaign(self, name: str) -> CachedCampaign:
        """The campaign of this id; refused if there is none."""
        found = self._campaigns.get(name)
        if found is None:
            raise Refused(wire.Code.UNKNOWN_CAMPAIGN)
        return found

    def _read_if_known(self, campaign: Campaign) -> CachedCampaign | None:
        """The campaign with its rounds; None if another version wrote it."""
        try:
            return self._read(campaign)
        except (BadInput, Refused):
            return None

    def _read(self, campaign: Campaign) -> CachedCampaign | None:
        before = self._campaigns.get(campaign.id)
        if before is not None and before.campaign == campaign:
            # The same plan, already read.
            campaign = before.campaign
            if campaign.state != OPEN:
                return before
        if not campaign.readable:
            return None
        rounds = tuple(self._store.rounds(campaign.id))
        shuffling = None if self._collecting else campaign.plan.shuffling
        if not rounds:
            return CachedCampaign(campaign, shuffling=shuffling)
        owners, _, reports = self._store.turnout(campaign.id, rounds[-1].number)
        query, asked = None, b""
        if campaign.state != OPEN:
            pass
        elif before and before.query and before.rounds[-1].digest == rounds[-1].digest:
            query, asked = before.query, before.asked
        else:
            asked = self._store.query(campaign.id, rounds[-1].number)
            query, _ = read_query(asked, plan=campaign.plan, plan_digest=campaign.digest)
        return CachedCampaign(campaign, rounds, query, asked, owners, reports, shuffling)
