"""The plans of a run that has several campaigns, one after the other."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confide.aggregator.campaigns.planning.plans import make_plan, valid_from
from confide.aggregator.campaigns.planning.settings import belongs, check_used, promising
from confide.protocol.chain_cost import ChainCost
from confide.protocol.errors import BadInput
from confide.protocol.methods.base import AUTOMATIC
from confide.protocol.methods.owner_terms import AS_ANSWERED
from confide.protocol.methods.registry import METHODS
from confide.protocol.plan import Plan
from confide.protocol.simulated.records import EMBEDDED_RECORDS
from confide.protocol.simulated.settings import ALWAYS, EMBEDDED_MODEL

# How long the plans of a run are valid.
DAYS = 30
# Settings of what is promised, with the value that asks for nothing. A run configuration has all of
# them, so that one which no campaign of the run uses would go unnoticed.
PROMISED: dict[str, Any] = {
    "guarantee": AUTOMATIC,
    "mixture": AS_ANSWERED,
    "smallest-owner": 0,
    "joint": False,
    "by": "",
}


@dataclass(frozen=True)
class TrainedModel:
    """A training's plan and the ONNX file of its model."""

    plan: Plan
    model: bytes


def trains(name: str) -> bool:
    """Return whether a campaign is a training, which has no card of its own."""
    method = METHODS.get(name.partition(":")[0])
    return method is not None and method.trains


class Plans:
    """Makes the plans of a run, by campaign, and refuses all of them if one cannot be made.

    The plans of a seeded simulation contain neither its time nor its id, so that it repeats.
    """

    def __init__(
        self,
        config: dict[str, Any],
        *,
        run: int,
        owners: int,
        began: datetime | None = None,
        may_wait: bool = False,
    ) -> None:
        """The run began now, unless `began` says when.

        `may_wait` says whether it can end after the training, and go on when owners have listed its
        model.
        """
        self._seeded = int(config["seed"]) >= 0
        config = config | {
            "records": int(config["records"]) or EMBEDDED_RECORDS,
            "owners": owners,
        }
        if not config["key-file"]:
            config = config | {"model": config["model"] or EMBEDDED_MODEL.hex()}
        elif self._seeded:
            raise BadInput(
                f"seed is {config['seed']} with a key-file; seeds are for simulations, accepted is "
                "-1"
            )
        if config.get("shuffler"):
            raise BadInput(
                f"shuffler is {config['shuffler']!r}, and nodes answer to a SuperLink, which knows "
                "them; accepted is a campaign of `confide-aggregator campaign create --shuffler`, "
                "that owners answer by `confide-client contribute`"
            )
        self.names = str(config["campaigns"]).split()
        asked = [name for name, usual in PROMISED.items() if config.get(name, usual) != usual]
        check_used(asked, promising(self.names, config.get("guarantee")), belongs())
        if trains(self.names[0]) and float(config["train-share"]) > 0:
            # Owners score with the model that the first campaign trains.
            config = config | {"model": config["model"] or bytes(32).hex()}
        self._config, self._run = config, run
        self._valid = ALWAYS if self._seeded else valid_from(began or datetime.now(UTC), days=DAYS)
        # The plans as they can be made beforehand: the model is not trained yet.
        self.drafts: list[Plan] = []
        # Whether owners have to list the trained model before the chain goes on.
        self.listed_first = False
        self._chain: tuple[ChainCost, ...] = ()
        training: TrainedModel | None = None
        for name in self.names:
            self.drafts.append(self.make(name, training))
            if training is not None and not trains(name):
                self.listed_first |= listed_first(self.drafts[-1], training.plan)
            if trains(name) and float(config["train-share"]) > 0:
                training = TrainedModel(self.drafts[-1], b"")
        self._chain = tuple(draft.cost for draft in self.drafts if draft.training)
        if self.listed_first and not may_wait:
            raise BadInput(
                "owners have to list the trained model before this chain goes on, since it is of a "
                "factory's network or its probabilities leave them. Accepted are a run with a "
                "key-file and an output folder, where it can wait for them, or a built-in network "
                "and bits, counts or full-data, or a run that only trains"
            )

    def make(self, name: str, trained: TrainedModel | None = None) -> Plan:
        """Make the plan of a campaign, for the trained model if there is one."""
        config = self._config
        if trained is not None:
            config = config | {"model": hashlib.sha256(trained.model).hexdigest()}
        return make_plan(
            name,
            config,
            title=name if self._seeded else f"{name} {self._run}",
            valid=self._valid,
            training=None if trained is None else trained.plan,
            chain=() if trained is None else self._chain,
        )


def listed_first(plan: Plan, training: Plan) -> bool:
    """Return whether owners calibrate the model of a training only after they have listed it.

    They recognise the networks of this package, but not a factory's. The probabilities of a model
    leave them in clear only if it is listed.
    """
    return training.terms.code is not None or plan.terms.shows_probabilities
