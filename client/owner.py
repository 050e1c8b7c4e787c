"""A data owner made ready to answer: its folder, its file of records and the model that scores
them."""

from datetime import UTC, datetime
from pathlib import Path

from confide.client.home import Home
from confide.client.records.models import Model
from confide.client.records.reader import read_records
from confide.client.respond import Respondent
from confide.protocol.exact.sampling import os_entropy


def open_owner(
    home: Home, records: Path, model: Path | None, *, new_records: bool = False
) -> Respondent:
    """The owner's respondent. A file of records mostly unknown to the ledger is refused, unless
    they are said to be new."""
    respondent = Respondent(
        records=read_records(records),
        policy=home.policy,
        ledger=home.ledger(),
        secret=home.secret(),
        entropy=os_entropy,
        now=lambda: datetime.now(UTC),
        model=None if model is None else Model.read(model),
        cache=home.scores_folder,
    )
    respondent.admit(new=new_records)
    return respondent
