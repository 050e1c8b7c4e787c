"""The engines of torch, for the canaries of `confide.simulation.attackers.canaries`."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from confide.client.training.engines.choice import make_clipper
from confide.client.training.engines.clipper import clipped_sum
from confide.client.training.engines.probe import made_up
from confide.protocol.methods.training.terms import TrainingTerms
from confide.simulation.attackers.canaries import FEATURES
from confide.simulation.attackers.estimator import Array, Release


def torch_engine(name: str) -> Callable[[TrainingTerms], Release]:
    """The clipped integer sums of a torch engine, at weights of 0.

    They are the same at every call, so each batch is taken once.
    """

    def sums(terms: TrainingTerms) -> Release:
        model = terms.network().module().double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()

        def loss(outputs: Tensor, labels: Tensor) -> Tensor:
            return cross_entropy(outputs, labels, reduction="none")

        shape = np.zeros((1, FEATURES)), np.zeros(1, dtype=np.int64)
        like = made_up(*shape, torch.device("cpu"))
        clipper = make_clipper(model, loss, terms.clip, engine=name, like=like)
        found: dict[bytes, Array] = {}

        def release(features: Array, labels: Array) -> Array:
            key = features.tobytes() + labels.tobytes()
            if key not in found:
                records = torch.from_numpy(features), torch.from_numpy(labels)
                rows = np.arange(len(labels))
                found[key] = clipped_sum(clipper, records, rows, weights=terms.size)
            return found[key]

        return release

    return sums
