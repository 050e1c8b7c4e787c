"""Which engine takes a model apart, and how many records fit into memory at a time."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor, nn

from confide.client.training.computing import AUTO, ENGINE_NAMES, SINGLE, engines_of
from confide.client.training.engines.clipper import Clipper
from confide.client.training.engines.closed_form import ClosedForm
from confide.client.training.engines.fixed_shapes import fixed_shapes, made_up_weights
from confide.client.training.engines.functional import Functional, Single
from confide.client.training.engines.ghost import Ghost
from confide.client.training.engines.hooks import Hooks
from confide.client.training.engines.parts import Engine, Loss, NotApplicable
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import LEAST_CHUNK, MOST_CHUNK, MOST_WEIGHTS

log = logging.getLogger(__name__)

ENGINES: dict[str, Callable[[nn.Module, Loss], Engine]] = dict(
    zip(ENGINE_NAMES, (ClosedForm, Ghost, Hooks, Functional, Single), strict=True)
)
# Memory for the activations, gradients, inputs and signals of a micro-batch; more is not faster.
_BYTES = 1 << 26
# The same for a micro-batch of one record.
_MOST_BYTES = 1 << 31


def make_clipper(
    model: nn.Module,
    loss: Loss,
    clip: float,
    *,
    engine: str = AUTO,
    like: tuple[Tensor, Tensor],
    batch: float = LEAST_CHUNK,
    trial: bool = False,
) -> Clipper:
    """A clipper for a model whose weights are float64; the log names its engine, but of a trial.

    `like` holds made-up features and targets of the shape and kind of the records
    (`confide.client.training.engines.probe.made_up`), on which engine and micro-batches are tried.
    `batch` is the expected number of records in a step, which is public: micro-batches need not be
    larger.
    """
    weights = _count_weights(model)
    held = _saved_numbers(model, loss, like)
    refused: NotApplicable | None = None
    for name in engines_of(engine):
        try:
            tried = ENGINES[name](made_up_weights(model), loss)
            # One row shows whether the engine applies, and what it holds.
            _, parts = tried.trace(like[0][:1], like[1][:1])
            numbers = held + 2 * sum(t.numel() for part in parts for t in part.tensors)
            most = 1 if name == SINGLE else _most_rows(numbers, batch)
            shapes = fixed_shapes(tried, like, most)
            # What fails on made-up rows too is not a record's fault, and is not hidden.
            rows = like[0][: shapes[0]], like[1][: shapes[0]]
            Clipper(name, tried, clip, shapes, weights).attempt(*rows, shape=shapes[0])
            found = Clipper(name, ENGINES[name](model, loss), clip, shapes, weights)
        except NotApplicable as error:
            refused = error
            continue
        if not trial:
            where = name, like[0].device, found.rows
            log.info("gradients by engine %s on %s, %d records at a time", *where)
        return found
    assert refused is not None
    raise refused


def _count_weights(model: nn.Module) -> int:
    """How many weights are trained, if they can be."""
    if any(parameter.dtype != torch.float64 for parameter in model.parameters()):
        raise BadInput("the model has weights that are not float64; accepted is model.double()")
    weights = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if not 1 <= weights <= MOST_WEIGHTS:
        raise BadInput(
            f"the model has {weights} weights to train; accepted are 1 to {MOST_WEIGHTS}"
        )
    return weights


def _saved_numbers(model: nn.Module, loss: Loss, like: tuple[Tensor, Tensor]) -> int:
    """How many numbers automatic differentiation keeps for one record, weights apart."""
    tried = made_up_weights(model)

    def saved(rows: int) -> int:
        kept: list[int] = []

        def note(value: Tensor) -> Tensor:
            kept.append(value.numel())
            return value

        with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
            loss(tried(like[0][:rows]), like[1][:rows])
        return sum(kept)

    return max(saved(2) - saved(1), 1)


def _most_rows(numbers: int, batch: float) -> int:
    """How many records to take at a time, if so many float64 numbers are held for each."""
    if 8 * numbers > _MOST_BYTES:
        raise BadInput(
            f"the model needs {numbers} numbers in memory for one record; accepted are at most "
            f"{_MOST_BYTES // 8}"
        )
    fitting = max(_BYTES // (8 * numbers), 1)
    return min(fitting, MOST_CHUNK, 1 << max(int(batch) - 1, 1).bit_length())
