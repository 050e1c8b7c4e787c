"""A whole campaign in one process: three owners with policy and ledger, one signed card.

The aggregator signs a plan. Each owner checks it against its policy, charges its ledger and answers
with randomised bits in the wire format. The card is written to `card.json`.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from confide import plan as make_plan
from confide import run_campaign, sign_plan, verify
from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.cards.issue import campaign_card
from confide.client.ledger.ledger import Ledger
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.client.simulated import SIMULATION_POLICY
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.simulated.embedded import predictions
from confide.protocol.simulated.settings import EMBEDDED_MODEL, SIMULATION_KEY

OWNERS, EACH, NOW = 3, 4_000, datetime.now(UTC)
POLICY = replace(SIMULATION_POLICY, methods=frozenset({"bits"}), epsilon_per_record=4.0)


def make_owner(number: int) -> Respondent:
    """An owner of some of the embedded records, with a ledger in the working folder."""
    (probs, labels), mine = predictions(), slice(number * EACH, (number + 1) * EACH)
    names = tuple(f"record {number}/{i}".encode() for i in range(EACH))
    return Respondent(
        records=Records(names, probs[mine].astype(np.float32), labels[mine], EMBEDDED_MODEL),
        policy=lambda: POLICY,
        ledger=Ledger(Path(f"owner-{number}.sqlite")),
        secret=bytes([number]) * 32,
        entropy=os_entropy,
        now=lambda: NOW,
    )


def main() -> None:
    plan = make_plan(
        "bits:certified",
        records=OWNERS * EACH,
        labels=26,
        model=EMBEDDED_MODEL,
        epsilon=4.0,
        minimum_owners=OWNERS,
    )
    signed = sign_plan(plan, SIMULATION_KEY)
    owners = [(bytes([i]), make_owner(i)) for i in range(OWNERS)]
    outcome = run_campaign(
        plan, lambda query: [Sent(name, owner.answer(signed, query)) for name, owner in owners]
    )
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW).sign(SIMULATION_KEY)
    Path("card.json").write_text(card.to_json())
    print(f"threshold {outcome.certificate.threshold:.3f}, owners {outcome.contributors}")
    print(f"every clause holds: {all(finding.holds for finding in verify(card))}")


if __name__ == "__main__":
    main()
