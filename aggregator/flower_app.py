"""Flower's server app: runs the campaigns of the run configuration over the grid."""

import hashlib
import json
import logging
import tempfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from threadpoolctl import threadpool_limits

from confide.aggregator.campaigns.driver import TooFew, run_campaign, run_training
from confide.aggregator.campaigns.measurements import Measured, Measurements
from confide.aggregator.campaigns.planning.provider_files import with_provider_files
from confide.aggregator.campaigns.planning.run_plans import Plans, TrainedModel, trains
from confide.aggregator.campaigns.planning.simulated_settings import simulated_settings
from confide.aggregator.campaigns.releases import Audited, Kept
from confide.aggregator.campaigns.report_scores import check_scoring
from confide.aggregator.campaigns.summary import Row, as_text, owners_text
from confide.aggregator.campaigns.training_result import (
    about_text,
    about_training,
    model_file,
    read_backbone,
    weights_file,
)
from confide.aggregator.campaigns.unfinished import Beginning, UnfinishedRun, unfinished_run
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.flower_messages import Asking
from confide.aggregator.keys import read_key
from confide.aggregator.procedures.averaging import Learned, error_rate
from confide.aggregator.procedures.counts.central import Draw
from confide.protocol.cards.card import AUDITOR
from confide.protocol.certificate import Certificate
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import SeededEntropy, os_entropy
from confide.protocol.files import write_whole
from confide.protocol.methods.training.mean_weights import TrainingTally
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan, digest, sign_plan
from confide.protocol.simulated.settings import SIMULATION_KEY

log = logging.getLogger("flwr")

# Of what is said about a training, that which is too long for the log.
UNLOGGED = ("terms", "owners", "error_rates")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run every campaign, log a table of them, and write certificates to the output folder."""
    # A simulation starts Ray beside this thread by forks. OpenBLAS's threads do not survive a fork,
    # so the work given to them would never end.
    threadpool_limits(1, user_api="blas")
    config = dict(context.run_config)
    folder = output_folder(str(config["output"]))
    fresh = Beginning(context.run_id, len(list(grid.get_node_ids())), datetime.now(UTC))
    with unfinished_run(folder, config, fresh) as unfinished:
        run = Run(grid, config, fresh, folder=folder, unfinished=unfinished)
        log.info("confide: %d nodes", len(run.nodes))
        rows = run.baseline()
        for name in run.names:
            if trains(name):
                run.train(name)
            elif run.waits:
                log.info("confide: %s", run.to_list())
                return
            else:
                rows.append(run.calibrate(name))
                log.info("confide: %s is done", name)
        run.end()
    log.info("confide:\n%s", as_text(rows))
    if rows and config["owner-column"]:
        log.info("confide: coverage / mean size by owner\n%s", owners_text(rows))


class Run:
    """The campaigns of a run, one after the other.

    In a chain (`train-share` above 0), campaigns after a training calibrate its model.
    """

    def __init__(
        self,
        grid: Grid,
        config: dict[str, Any],
        fresh: Beginning,
        *,
        folder: Path | None,
        unfinished: UnfinishedRun | None,
    ) -> None:
        self._simulation = not config["key-file"]
        self._key = SIMULATION_KEY if self._simulation else read_key(Path(str(config["key-file"])))
        self.nodes = sorted(grid.get_node_ids())
        self._measured: Measurements | None = None
        if self._simulation:
            config, self._model = simulated_settings(config, owners=len(self.nodes))
            self._measured = Measurements(config, owners=len(self.nodes), model=self._model)
        else:
            config, self._model = with_provider_files(config)
        begun, self._unfinished = fresh if unfinished is None else unfinished.beginning, unfinished
        self._plans = Plans(config, **vars(begun), may_wait=unfinished is not None)
        self._grid, self._config, self._run, self._folder = grid, config, begun.run, folder
        self.names = self._plans.names
        self._chain = float(config["train-share"]) > 0
        self._trained: TrainedModel | None = None
        # Whether the run ends after the training, for owners to list its model.
        self.waits = self._plans.listed_first and not config["listed"]
        if config["listed"]:
            self._check_listed()
        for draft in self._plans.drafts:
            # A model that cannot score is refused before anybody is asked.
            check_scoring(draft, self._model)

    def baseline(self) -> list[Row]:
        """Calibration without privacy of the same model, next to which a simulation stands."""
        if self._measured is None or self._chain or all(map(trains, self.names)):
            return []
        return [self._measured.non_private(alpha=float(self._config["alpha"]))]

    def train(self, name: str) -> None:
        """Run a training, log what it cost, and write the weights, the model and the terms."""
        plan = self._plans.make(name)
        terms, backbone = (
            TrainingTerms.of(plan.terms),
            read_backbone(str(self._config.get("backbone", ""))),
        )
        if terms.uses_model and self._simulation:
            raise BadInput(
                "a head is trained by owners that hold its model; simulated owners hold none: "
                "accepted are other networks"
            )
        # What cannot be exported is refused before anybody is asked: then budgets are spent.
        model_file(plan, terms.network().first_weights(), backbone=backbone)
        keep = None if self._unfinished is None else self._unfinished.begin(plan).before

        def tell(round_: int, tally: TrainingTally) -> None:
            rate = error_rate(terms, tally)
            said = "" if rate is None else f"; its weights began with {rate}"
            log.info(
                "confide: round %d of %d: %d owners%s", round_ + 1, terms.rounds, tally.owners, said
            )

        try:
            learned, received = run_training(plan, self._asking(plan), tell, keep=keep)
        except TooFew:
            # The same rounds would fail again.
            self.end()
            raise
        about = about_training(plan, learned, received)
        model = self._exported(plan, learned, backbone)
        if self._measured is not None:
            about |= self._measured.trained(terms, learned.weights)
        log.info(
            "confide: %s",
            {name: value for name, value in about.items() if name not in UNLOGGED},
        )
        if self._chain:
            self._trained = TrainedModel(plan, model)
        if self._folder is not None:
            write_whole(self._folder / "training-weights.npz", weights_file(learned.weights))
            file = self._folder / name.replace(":", "-")
            write_whole(file.with_suffix(".onnx"), model)
            write_whole(file.with_suffix(".json"), about_text(about))

    def _exported(self, plan: Plan, learned: Learned, backbone: bytes | None) -> bytes:
        """The model's file; after a training that the run continues, the trained one."""
        if self._unfinished is None:
            return model_file(plan, learned.weights, backbone=backbone)
        model = self._unfinished.model()
        if model is None:
            model = model_file(plan, learned.weights, backbone=backbone)
            self._unfinished.keep_model(model)
        return model

    def _check_listed(self) -> None:
        """Refuse `listed` where there is no model that owners had to list."""
        if not self._plans.listed_first:
            raise BadInput("listed is true, and owners need not list a model; accepted is false")
        if self._unfinished is None or self._unfinished.model() is None:
            raise BadInput(
                "listed is true, and output holds no trained model that waits; accepted is false, "
                "until the training has ended"
            )

    def to_list(self) -> str:
        """What owners have to do before the chain continues."""
        assert self._trained is not None
        name = hashlib.sha256(self._trained.model).hexdigest()
        return (
            "owners have to list the trained model, since it is of a factory's network or its "
            f"probabilities leave them: each types `confide-client allow model {name}`. Then start "
            "the same run again with listed=true"
        )

    def end(self) -> None:
        """Forget what was kept to continue the run."""
        if self._unfinished is not None:
            self._unfinished.end()

    def calibrate(self, name: str) -> Row:
        """Run a calibration and write its certificate and cards."""
        trained = self._trained
        plan = self._plans.make(name, trained)
        seed = int(self._config["seed"])
        draw = Audited(kept_draw(self._folder, plan, seed=seed, run=self._run))
        model = b"" if trained is None else trained.model
        asking = self._asking(plan, model=model)
        outcome = run_campaign(plan, asking, draw=draw, model=self._model)
        numbered = [asking.owners.get(sender) for sender in outcome.senders]
        measured, owners = self._measure(outcome.certificate, model, numbered)
        card = campaign_card(
            plan,
            outcome,
            diagnostic=measured,
            issued=datetime.now(UTC),
            training=None if trained is None else trained.plan,
        ).sign(self._key)
        row = {
            "campaign": name,
            "plan": sign_plan(plan, self._key).hex(),
            **asdict(outcome.certificate),
            "channel": outcome.certificate.mechanism,
            "received": outcome.received,
            **measured,
            **owners,
        }
        if self._folder is not None:
            file = self._folder / name.replace(":", "-")
            write_whole(file.with_suffix(".card.json"), card.to_json())
            if draw.diagnostic:
                audit = replace(card, diagnostic=measured | draw.diagnostic, view=AUDITOR)
                write_whole(file.with_suffix(".auditor.json"), audit.sign(self._key).to_json())
            write_whole(file.with_suffix(".json"), json.dumps(row, indent=2) + "\n")
        return row

    def _measure(
        self, certificate: Certificate, model: bytes, numbered: list[int | None]
    ) -> tuple[Measured, dict[str, list[Row]]]:
        """Measure a threshold on test records, overall and by owner; nothing in a deployment.

        `numbered` are the numbers of the owners that answered, in the order of cards.
        """
        if self._measured is None:
            return {}, {}
        results = self._measured.predictions(model) if model else None
        owners = self._measured.by_owner(certificate, results, numbered=numbered)
        measured = self._measured.of(certificate, results, numbered=numbered)
        return measured, {"owners": owners}

    def _asking(self, plan: Plan, *, model: bytes = b"") -> Asking:
        return Asking(
            self._grid,
            self.nodes,
            {"plan": sign_plan(plan, self._key)} | ({"model": model} if model else {}),
            timeout=float(self._config["timeout"]),
        )


def output_folder(path: str) -> Path | None:
    """Create the output folder and check that it can be written, before anything is asked.

    Once owners were asked, their budgets are spent.
    """
    if not path:
        return None
    folder = Path(path)
    if not folder.is_absolute():
        raise BadInput(
            f"output is {path!r}; accepted is an absolute path: the app runs in a folder of "
            "Flower's"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(
            f"output is {path!r}, where nothing can be written: {error.strerror}; accepted is a "
            "folder"
        ) from None
    return folder


def kept_draw(folder: Path | None, plan: Plan, *, seed: int, run: int) -> Draw:
    """Make a draw that, given a folder, stores its release there before anybody sees it.

    A stored release is not drawn again. Its file name contains the run, because plans of seeded
    simulations may be the same in several runs.
    """
    entropy = os_entropy if seed < 0 else SeededEntropy("release", seed)
    if folder is None:
        return lambda mechanism, histogram, rank: mechanism.release(histogram, rank, entropy)
    return Kept(folder / f"release-{run}-{digest(plan.to_bytes()).hex()}.json", entropy)
