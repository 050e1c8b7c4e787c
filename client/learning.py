"""An owner's part in federated training: its numbered steps of DP-SGD, from the weights it is sent."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from client.descent import Schedule
from client.federated import Share, local_steps
from protocol.training import Terms, Weights, split


def learn(terms: Terms, weights: Weights, features: NDArray[Any], labels: NDArray[Any], *, key: bytes, round_: int) -> Weights:
    """The weights after this round's steps. A key and a round make one draw of noise: the caller answers a round once."""
    layers = [layer for inputs, outputs in terms.shapes for layer in (nn.Linear(inputs, outputs), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    linear = [layer for layer in model if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer, (matrix, bias) in zip(linear, split(terms, weights), strict=True):
            layer.weight.copy_(torch.from_numpy(matrix.copy()))
            layer.bias.copy_(torch.from_numpy(bias.copy()))
    schedule = Schedule(
        noise_multiplier=terms.noise_multiplier, sampling_rate=terms.sampling_rate, steps=terms.rounds * terms.local_steps,
        clip=terms.clip, batch=terms.batch,
    )  # fmt: skip
    # A label that the model has no output for takes no part: to refuse would tell that somebody has it.
    known = labels < terms.layers[-1]
    share = Share(np.clip(features[known], 0, 1), labels[known], schedule, key)
    taken = local_steps(
        model, model.state_dict(), share, range(round_ * terms.local_steps, (round_ + 1) * terms.local_steps),
        loss=nn.CrossEntropyLoss(reduction="none"),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=terms.learning_rate),
    )  # fmt: skip
    return np.concatenate([value.numpy().ravel() for value in taken.values()]).astype(np.float32)
