"""What a chain is compared with, in process: one owner of all records, and no privacy at all.

Both train the network of the chain on the records that trained it, and calibrate on those that
calibrated it.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.aggregator.campaigns.driver import run_procedure
from confide.aggregator.campaigns.planning.plans import make_plan
from confide.aggregator.procedures.averaging import federated_averaging
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.client.training.computing import Computing
from confide.client.training.local_round import Trainer
from confide.protocol.architectures.base import Weights, scaled
from confide.protocol.architectures.export import predict_file, to_onnx
from confide.protocol.certificate import Certificate
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.training.mean_weights import TrainingTally
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.rule import usual_rate
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.privacy.renyi import training_noise
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import true_scores
from confide.protocol.simulated.settings import ALWAYS
from confide.simulation.driver import BitUsers, CountingOwner, NoisingOwners, drive

Array = NDArray[Any]
SCORE = "hps"
# How far the noise of a step of one owner moves the weights (docs/training.md), and its rounds, of
# which it averages the last quarter. Chosen by a few tries on USPS.
ALONE_LENGTH, ALONE_ROUNDS = 0.3, 60
# Of the training without privacy; enough that accuracy does not rise any more.
EPOCHS, MINIBATCH, RATE = 30, 64, 2e-3


@dataclass(frozen=True)
class Records:
    """Features in [0, 1] and labels."""

    features: Array
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, places: Array) -> "Records":
        return Records(self.features[places], self.labels[places])


@dataclass(frozen=True)
class Measured:
    """A model's probabilities of records, in the precision in which owners score."""

    probs: Array
    labels: Array

    @staticmethod
    def of(model: bytes, records: Records) -> "Measured":
        return Measured(
            predict_file(model, records.features).astype(np.float32), records.labels.astype(int)
        )

    def at(self, places: Array) -> "Measured":
        return Measured(self.probs[places], self.labels[places])

    @property
    def accuracy(self) -> float:
        return float(np.mean(self.probs.argmax(axis=1) == self.labels))

    def scores(self, score: str) -> Array:
        return true_scores(SCORES[score], self.probs, self.labels)

    def sets(self, score: str, threshold: float) -> tuple[float, float]:
        """The coverage and the mean size of the prediction sets."""
        found = Predictor(SCORES[score], threshold).predict_set(self.probs)
        covered = found[np.arange(len(self.labels)), self.labels]
        return float(covered.mean()), float(found.sum(axis=1).mean())


def alone(terms: TrainingTerms, *, records: int) -> TrainingTerms:
    """The terms of one owner of all records, at the same epsilon."""
    noise = training_noise(
        epsilon=terms.epsilon,
        delta=terms.privacy_delta,
        sampling_rate=terms.sampling_rate,
        steps=ALONE_ROUNDS,
    )
    batch = terms.sampling_rate * records
    return replace(
        terms,
        batch=batch,
        learning_rate=usual_rate(
            noise_multiplier=noise,
            size=terms.size,
            owners=1,
            clip=terms.clip,
            batch=batch,
            length=ALONE_LENGTH,
        ),
        rounds=ALONE_ROUNDS,
        local_steps=1,
        averaged_rounds=ALONE_ROUNDS // 4,
        noise_multiplier=noise,
    )


def one_owner(terms: TrainingTerms, records: Records) -> bytes:
    """The model of one owner of all records, with these terms."""
    trainer = Trainer(terms, computing=Computing("cpu"))

    def answer(query: TrainingQuery, _: int) -> TrainingTally:
        learned = trainer.learn(query.weights, records.features, records.labels, entropy=os_entropy)
        return TrainingTally.of([learned])

    weights = run_procedure(federated_averaging(terms), answer).weights
    return to_onnx(terms.network(), weights, centre=terms.centre)


def without_privacy(terms: TrainingTerms, records: Records) -> bytes:
    """The model of the same network trained by Adam, without clipping and noise."""
    import torch
    from torch.nn.functional import cross_entropy

    network = terms.network()
    torch.manual_seed(0)
    module = network.module().train()
    features = torch.from_numpy(scaled(records.features, terms.centre).astype(np.float32))
    labels = torch.from_numpy(records.labels.astype(np.int64))
    optimizer = torch.optim.Adam(module.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(records)).split(MINIBATCH):
            optimizer.zero_grad()
            cross_entropy(module(features[rows]), labels[rows]).backward()
            optimizer.step()
    named = {name: value.detach().numpy() for name, value in module.named_parameters()}
    weights: Weights = np.concatenate([named[name].ravel() for name in network.shapes])
    return to_onnx(network, weights, centre=terms.centre)


def counted(settings: dict[str, Any], scores: Array) -> Certificate:
    """A calibration by exact counts of one owner, who trusts the aggregator."""
    plan = make_plan("central:trusted", settings, title="one owner", valid=ALWAYS)
    return drive(plan_procedure(plan, draw_afresh), CountingOwner(scores))


@dataclass(frozen=True)
class Again:
    """A calibration of a chain, repeated in process: coverages on other records, thresholds."""

    coverage: Array
    thresholds: Array

    def mean(self) -> str:
        """The mean coverage, and the deviation of that mean over repetitions."""
        error = self.coverage.std(ddof=1) / np.sqrt(len(self.coverage))
        return f"{self.coverage.mean():.4f} ({error:.4f})"

    @property
    def trivial(self) -> float:
        """How often no threshold came of it."""
        return float(np.mean(self.thresholds >= 1))


def again(
    plan: Plan, *, trained: Measured, rest: Measured, calibrating: int, owners: int, repeats: int
) -> Again:
    """Repeat a calibration of one model with new noise, on the records that its plan asks.

    Those that did not train are divided anew into so many for `calibrating` and the others, which
    test; where those that trained calibrate, all others test.
    """
    rng, found = np.random.default_rng(0), []
    for _ in range(repeats):
        order = rng.permutation(len(rest.labels))
        same = plan.terms.on_training_records
        given = trained if same else rest.at(order[:calibrating])
        test = rest if same else rest.at(order[calibrating:])
        scores = rng.permutation(given.scores(SCORE))
        certificate = drive(
            plan_procedure(plan, draw_afresh), _answering(plan, scores, owners=owners)
        )
        found.append((test.sets(SCORE, certificate.threshold)[0], certificate.threshold))
    coverage, thresholds = np.array(found).T
    return Again(coverage, thresholds)


def _answering(plan: Plan, scores: Array, *, owners: int) -> Any:
    """What answers the queries of a plan for records with these scores."""
    if plan.method == "bits":
        return BitUsers(scores, os_entropy)
    if plan.variant.endswith("owner-noised"):
        return NoisingOwners(scores, owners, os_entropy)
    return CountingOwner(scores)
