"""Who takes part in a campaign: records, or the persons they belong to, chosen by a keyed hash.

Only the owner's secret chooses records, assigns them to questions and gives reports their ids. What
is chosen follows from names, and not from what records hold.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from confide.client.ledger.ledger import Ledger
from confide.client.records.records import Records
from confide.protocol.plan import Plan, split_name
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import ID_BYTES


class Participants:
    """The records of an owner under names that only its secret can make."""

    def __init__(self, records: Records, ledger: Ledger, secret: bytes) -> None:
        self._secret = secret
        self._own = [self._hash(name, b"record", 16) for name in records.names]
        known = ledger.persons() if records.persons is None else {}
        self._persons = (
            None
            if records.persons is None
            else [self._hash(name, b"person", 16) for name in records.persons]
        )
        # Records, or the persons they belong to by this file or by an earlier one.
        self._names = self._persons or [known.get(name, name) for name in self._own]
        self._placed: tuple[bytes, Array, NDArray[np.float64]] | None = None

    def __len__(self) -> int:
        return len(set(self._names))

    def admit(self, ledger: Ledger, *, new: bool) -> None:
        """Register records and their persons in the ledger."""
        ledger.admit(self._own, self._persons, new=new)

    def payers(self, places: Array) -> list[tuple[bytes, ...]]:
        """Return the names that a charge for each of these records is kept under."""
        return [tuple({self._own[i], self._names[i]}) for i in places.tolist()]

    def taking_part(self, plan: Plan, plan_digest: bytes) -> tuple[Array, NDArray[np.float64]]:
        """Return the records that take part in a campaign, one per person, and all positions."""
        if self._placed is None or self._placed[0] != plan_digest:
            everyone = np.arange(len(self._names))
            positions = self.units(plan_digest, everyone, b"position")
            if len(self) < len(self._names):
                # On the records of a training, a person has the record that trained.
                same = plan.terms.on_training_records
                everyone = self.one_each(plan.training if same else plan_digest)
            if plan.share:
                first, last = plan.share
                parts = self.units(split_name(plan, plan_digest), everyone, b"split")
                everyone = everyone[(parts >= first) & (parts < last)]
            self._placed = plan_digest, everyone, positions
        return self._placed[1:]

    def without(self, places: Array, names: set[bytes]) -> Array:
        """Return the places of records that no one of these names pays for."""
        if not names:
            return places
        kept = [names.isdisjoint(payers) for payers in self.payers(places)]
        return places[np.array(kept, dtype=bool)]

    def only(self, places: Array, names: set[bytes]) -> Array:
        """Return the places of records that are themselves among these names."""
        kept = [self._own[i] in names for i in places.tolist()]
        return places[np.array(kept, dtype=bool)]

    def one_each(self, digest: bytes) -> Array:
        """Choose one record of every person for what this digest names."""
        drawn: dict[bytes, tuple[bytes, int]] = {}
        for i, (person, own) in enumerate(zip(self._names, self._own, strict=True)):
            ticket = self._hash(digest + own, b"ticket", 8), i
            drawn[person] = min(drawn.get(person, ticket), ticket)
        return np.array(sorted(i for _, i in drawn.values()), dtype=np.int64)

    def units(self, digest: bytes, chosen: Array, purpose: bytes) -> NDArray[np.float64]:
        """Return a uniform number in [0, 1) per record, which only the owner can predict.

        It is 53 bits of a keyed hash.
        """
        words = b"".join(self._hash(digest + self._names[i], purpose, 8) for i in chosen.tolist())
        return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def report_ids(self, plan_digest: bytes, places: Array, *, whole: bool) -> tuple[Array, Array]:
        """Return the ids of the reports and the places in their order; a whole owner has one id.

        Reports are in the order of their ids: the order of the file would tell which reports of two
        campaigns belong to the same record.
        """
        names = [self._hash(plan_digest, b"owner", ID_BYTES)]
        if not whole:
            named = sorted(
                (self._hash(plan_digest + self._names[i], b"report", ID_BYTES), i)
                for i in places.tolist()
            )
            names, places = [name for name, _ in named], np.array([i for _, i in named])
        return np.frombuffer(b"".join(names), dtype=np.uint8).reshape(-1, ID_BYTES), places

    def _hash(self, data: bytes, purpose: bytes, size: int) -> bytes:
        return hashlib.blake2b(data, key=self._secret, person=purpose, digest_size=size).digest()
