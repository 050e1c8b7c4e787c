"""`confide-aggregator chain`: train a model, then calibrate that model, from one file."""

import hashlib
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.aggregator.campaigns.planning.plans import make_plan, valid_from
from confide.aggregator.campaigns.planning.run_plans import listed_first
from confide.aggregator.campaigns.training_result import model_file, read_backbone
from confide.aggregator.cli.plan_options import SETTINGS, with_defaults
from confide.aggregator.cli.stored import Database, open_store
from confide.aggregator.keys import read_key
from confide.aggregator.storage.database import DEFAULT
from confide.aggregator.storage.store import Store
from confide.aggregator.storage.stored_campaign import (
    CALIBRATED,
    DRAFT,
    PUBLISHED,
    TRAINED,
    Campaign,
    Settings,
)
from confide.aggregator.storage.training_progress import error_rates
from confide.protocol.cards.card import PUBLIC, parse_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import headline
from confide.protocol.chain_cost import ChainCost
from confide.protocol.commands.terminal import clear_errors
from confide.protocol.errors import BadInput
from confide.protocol.files import make_folder, write_whole
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan, sign_plan
from confide.protocol.wire.columns import F4

TRAINING = "training:federated-averaging"
TRAIN_SHARE = 0.8
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class ChainFile:
    """The settings of a chain: of all campaigns, of the training, and of each calibration."""

    title: str
    shared: dict[str, Any]
    training: dict[str, Any]
    calibrations: tuple[dict[str, Any], ...]
    # The file of the model that a head is trained on.
    backbone: bytes | None

    @staticmethod
    def read(path: Path) -> "ChainFile":
        try:
            values = tomllib.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise BadInput(f"{path} cannot be read as TOML: {error}") from None
        training, calibrations = values.pop("training", None), values.pop("calibration", None)
        if not isinstance(training, dict) or not _is_tables(calibrations):
            raise BadInput(
                f"{path} lacks a table [training], or tables [[calibration]]; accepted are one of "
                "the first and at least one of the second"
            )
        if not isinstance(values.get("title"), str):
            raise BadInput(f"{path} has no title; accepted is a text that names the chain")
        named = [str(one.get("campaign", "")) for one in calibrations]
        if len(set(named)) < len(named) or "" in named:
            raise BadInput(
                f"{path} has calibrations {named}; accepted are campaigns that differ, each as "
                "method:variant"
            )
        title, backbone = values.pop("title"), read_backbone(str(training.pop("backbone", "")))
        return ChainFile(
            title, {"train-share": TRAIN_SHARE} | values, training, tuple(calibrations), backbone
        )

    def training_settings(self) -> dict[str, Any]:
        """Return the settings of the training; a head's model is its backbone."""
        model = "" if self.backbone is None else hashlib.sha256(self.backbone).hexdigest()
        return self.settings(self.training, campaign=TRAINING, model=model)

    def settings(self, own: dict[str, Any], *, campaign: str, model: str = "") -> dict[str, Any]:
        """Return the settings of one campaign, with the defaults of those not given."""
        given = self.shared | own | {"campaign": campaign, "title": f"{self.title}: {campaign}"}
        return with_defaults(given | ({"model": model} if model else {}))


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


class Chain:
    """Takes the steps of a chain that are still to be taken.

    All that it knows is in the database, under the titles of the campaigns: a chain that was
    interrupted goes on where it was.
    """

    def __init__(self, file: ChainFile, *, store: Store, key: Ed25519PrivateKey) -> None:
        self._file, self._store, self._key = file, store, key
        self._costs: tuple[ChainCost, ...] = ()

    def check(self, *, exported: bool) -> bool:
        """Refuse settings that make no valid plan, before any campaign starts.

        So is a network of which no file can be made, unless that was done. Returns whether owners
        accept the model unlisted (`confide.aggregator.campaigns.planning.run_plans.listed_first`).
        """
        training = self._plan(self._file.training_settings())
        if not exported:
            first = TrainingTerms.of(training.terms).network().first_weights()
            model_file(training, first, backbone=self._file.backbone)
        # Of a model that is not known yet.
        plans = [
            self._plan(
                self._file.settings(own, campaign=own["campaign"], model=bytes(32).hex()), training
            )
            for own in self._file.calibrations
        ]
        self._costs = tuple(plan.cost for plan in plans)
        return not any(listed_first(plan, training) for plan in plans)

    def train(self) -> Iterator[Campaign]:
        """Run the training; yields it until it has ended."""
        if self._file.backbone is not None:
            self._store.keep_model(self._file.backbone)
        yield from self._run(self._file.training_settings(), None, ends=(TRAINED,))

    def export(self, training: Campaign) -> bytes:
        """Return the model of a training, and let owners fetch it."""
        data = self._store.weights(training.id)
        assert data is not None
        weights = np.frombuffer(data, dtype=F4)
        return self.kept(model_file(training.plan, weights, backbone=self._file.backbone))

    def kept(self, model: bytes) -> bytes:
        """Let owners fetch this model."""
        self._store.keep_model(model)
        return model

    def calibrate(
        self, own: dict[str, Any], training: Campaign, model: bytes
    ) -> Iterator[Campaign]:
        """Run a calibration of the model; yields it until it has ended."""
        digest = hashlib.sha256(model).hexdigest()
        values = self._file.settings(own, campaign=own["campaign"], model=digest)
        yield from self._run(values, training.plan, ends=(CALIBRATED, PUBLISHED))

    def _run(
        self, values: dict[str, Any], training: Plan | None, *, ends: tuple[str, ...]
    ) -> Iterator[Campaign]:
        one = self._found_or_created(values, training)
        while True:
            yield one
            if one.state in ends:
                return
            if one.reason is not None:
                raise BadInput(f"campaign {one.id} ended without a result: {one.reason}")
            time.sleep(POLL_SECONDS)
            one = self._store.campaign(one.id)

    def _found_or_created(self, values: dict[str, Any], training: Plan | None) -> Campaign:
        plan = self._plan(values, training)
        for one in self._store.campaigns():
            if one.readable and one.plan.campaign == plan.campaign:
                kept = replace(plan, issued=one.plan.issued, expires=one.plan.expires)
                if kept != one.plan:
                    raise BadInput(
                        f"campaign {one.id} has the title {plan.campaign!r} and other terms; "
                        "accepted is another title in the chain file"
                    )
                break
        else:
            settings = Settings(
                **{field: values[option] for option, field in SETTINGS.items() if option in values}
            )
            one = self._store.create(sign_plan(plan, self._key), settings, now=time.time())
        if one.state == DRAFT:
            self._store.open(one.id, now=time.time())
        return self._store.campaign(one.id)

    def _plan(self, values: dict[str, Any], training: Plan | None = None) -> Plan:
        return make_plan(
            values["campaign"],
            values,
            title=values["title"],
            valid=valid_from(datetime.now(UTC), days=values["days"]),
            training=training,
            chain=() if training is None else self._costs,
        )


def chain_command(
    file: Annotated[Path, typer.Argument(help="the chain, in TOML; see docs/training.md")],
    *,
    out: Annotated[Path, typer.Option(help="folder for the model and the cards")],
    key: Annotated[Path, typer.Option(help="key that signs the plans (aggregator.key of `init`)")],
    listed: Annotated[
        bool,
        typer.Option(
            "--listed", help="continue: the owners have listed the model, as they were asked to"
        ),
    ] = False,
    db: Database = DEFAULT,
) -> None:
    """Train a model with owners, and calibrate that very model on the records it has not seen.

    Campaigns are opened one after the other, and their ids printed for the owners; `serve` must be
    running. Interrupted, the same command goes on where it was. Where owners have to list the
    model first (a factory's network, campaigns of labels), the command ends after the training, and
    goes on with --listed.
    """
    with clear_errors():
        chain = Chain(ChainFile.read(file), store=(store := open_store(db)), key=read_key(key))
        path = out / "model.onnx"
        accepted = chain.check(exported=listed)
        if listed and (accepted or not path.is_file()):
            why = "owners need not list the model" if accepted else f"there is no {path} to list"
            raise BadInput(f"--listed is given, and {why}; accepted is the command without it")
        make_folder(out)
        training = _followed(chain.train(), store)
        model = chain.kept(path.read_bytes()) if listed else chain.export(training)
        write_whole(path, model)
        name = hashlib.sha256(model).hexdigest()
        print(f"model: {path}, SHA-256 {name}")
        if not (accepted or listed):
            print(
                "Owners have to list this model, since it is of a factory's network or its "
                f"probabilities leave them: each types `confide-client allow model {name}`. Then "
                "give this command again with --listed."
            )
            return
        for own in ChainFile.read(file).calibrations:
            one = _followed(chain.calibrate(own, training, model), store)
            text = store.card(one.id, PUBLIC)
            assert text is not None
            written = out / f"{str(own['campaign']).replace(':', '-')}.card.json"
            write_whole(written, text)
            card = parse_card(text)
            broken = [found.clause for found in verify(card) if not found.holds]
            print(f"card: {written}: {f'FAILS {broken}' if broken else headline(card)}")


def _followed(steps: Iterator[Campaign], store: Store) -> Campaign:
    """Print the id of a campaign and its rounds as they are done; return it when it has ended."""
    done, last = -1, None
    for one in steps:
        if last is None:
            print(f"campaign {one.id}: {one.plan.campaign}", flush=True)
        closed = sum(round_.closed is not None for round_ in store.rounds(one.id))
        if closed != done:
            done = closed
            in_all = f" of {one.plan.terms.rounds}" if one.plan.terms.rounds else ""
            rates = error_rates(store, one.id, one.plan)
            said = f"; round {max(rates) + 1} began with {rates[max(rates)]}" if rates else ""
            print(f"  {done}{in_all} rounds done{said}", flush=True)
        last = one
    assert last is not None
    return last
