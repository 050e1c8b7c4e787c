"""`train`: train a network on the owner's own records, with nobody else."""

import hashlib
import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from confide.client.cli.train_options import FileOptions, NetworkOptions
from confide.client.home import Home
from confide.client.ledger.charges import Cost, LedgerQuery
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.reader import read_records
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.client.training.shown_log import show_training
from confide.protocol.commands.option_groups import grouped
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.files import write_whole

if TYPE_CHECKING:
    from confide.client.training.own_training import OwnTraining

# Trainings of one's own are one campaign to the policy, and nobody's key has signed it.
CAMPAIGN = "own training"
NOBODY = bytes(32)


class Unfinished(BaseException):
    """A training that ended without weights.

    The ledger charges for an answer that could not be drawn, because an aggregator would learn of
    the failure. Nobody learns of this one, so it must pass the ledger by: hence no Exception.
    """


@grouped
def train(files: FileOptions, network: NetworkOptions) -> None:
    """Train a network on your own records, with nobody else.

    Beside the weights lies the model, an ONNX file like those that `allow model` and `contribute`
    take. Both are charged to your records when they are written, because a file can leave this
    machine without asking. Killed or interrupted, the same command goes on from the checkpoint;
    finished, it writes the same weights again and charges nothing.
    """
    with clear_errors():
        files.check()
        show_training()
        place = Home(files.home)
        records = read_records(files.records, public=place.policy().columns_may_leave)
        training = network.training(records)
        ledger, limits = place.ledger(), place.policy().limits
        asked = _ledger_query(training, records)
        found = ledger.remembered(asked.plan, asked.query)
        before = found is not None
        if found is None:
            try:
                found = _drawn(training, records, files, asked=asked, ledger=ledger)
            except Unfinished as ended:
                raise (ended.__cause__ or ended) from None
        if not ledger.may_leave(asked.plan, asked.query, limits):
            raise BadInput(
                "the weights stay in the ledger: your policy does not allow what their records "
                f"have spent. Accepted is a larger budget in {place.policy_file}"
            )
        paid = sum(row.records for row in ledger.campaigns() if row.plan == asked.plan)
        _write(found, training, files, before=before, paid=paid)


def _ledger_query(training: "OwnTraining", records: Records) -> LedgerQuery:
    digest = training.digest(records)
    return LedgerQuery(digest, CAMPAIGN, NOBODY, digest, 0)


def _drawn(
    training: "OwnTraining",
    records: Records,
    files: FileOptions,
    *,
    asked: LedgerQuery,
    ledger: Ledger,
) -> bytes:
    """Train on the records that can pay, and charge them in the commit that keeps the weights."""
    place = Home(files.home)
    respondent = Respondent(
        records=records,
        policy=place.policy,
        ledger=ledger,
        secret=place.secret(),
        entropy=os_entropy,
        now=lambda: datetime.now(UTC),
    )
    respondent.admit(new=files.new_records)
    paying = respondent.payers(asked.plan)
    rows = np.array(sorted(paying), dtype=np.int64)

    def draw(places: list[int]) -> bytes:
        try:
            return training.train(
                records,
                rows[places],
                checkpoint=files.state,
                every=files.every,
                computing=files.computing,
                progress=lambda taken, steps: print(f"step {taken} of {steps}", file=sys.stderr),
            )
        except Exception as error:
            raise Unfinished from error

    policy = place.policy()
    answer = ledger.answer(
        asked,
        cost=Cost(training.epsilon, training.delta),
        limits=policy.limits,
        payers=[paying[row] for row in rows.tolist()],
        draw=draw,
        now=datetime.now(UTC),
    )
    if answer is None:
        raise BadInput(_too_few(training, policy, len(rows)))
    return answer


def _too_few(training: "OwnTraining", policy: Policy, records: int) -> str:
    return (
        f"of {records} records fewer than {policy.minimum_group} can pay epsilon "
        f"{training.epsilon:g} and delta {training.delta:g}; your policy allows a record epsilon "
        f"{policy.epsilon_per_record:g} and delta {policy.delta_per_record:g} in all, and a "
        f"campaign {policy.epsilon_per_campaign:g} and {policy.delta_per_campaign:g}, of which "
        f"all of your own trainings are one. Accepted is a smaller cost, or another policy"
    )


def _write(
    weights: bytes, training: "OwnTraining", files: FileOptions, *, before: bool, paid: int
) -> None:
    """Write the weights, the model and what they are; the checkpoint is needed no more.

    `paid` is the number of records that took part.
    """
    from confide.client.training.weights_file import unpack_weights

    numbers, about = unpack_weights(weights)
    model = training.model(numbers)
    about["model_sha256"] = hashlib.sha256(model).hexdigest()
    write_whole(files.out, weights)
    write_whole(files.model, model)
    write_whole(files.about, json.dumps(about, indent=2) + "\n")
    files.state.unlink(missing_ok=True)
    steps, asked = about["schedule"]["steps"], about["steps_asked"]
    if steps < asked:
        print(f"Ended after {steps} of {asked} steps: one more would pass the budget.")
    print(f"wrote {files.out}, {files.model} and {files.about}: weights after {steps} steps")
    if before:
        print("This training was charged when it was first written; nothing was charged now.")
    else:
        print(
            f"Each of the {paid} records that took part was charged epsilon {about['epsilon']:g} "
            f"and delta {about['delta']:g}, so these weights may leave; `confide-client status` "
            "shows the whole ledger."
        )
