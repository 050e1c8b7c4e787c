"""A trial of model and loss before training: does the clipped sum treat every record by itself?

The bound on one record's effect on a sum rests on two things that no type can state: a record's
gradient does not depend on the other records of its batch, and a record's whole gradient is
clipped. Batch statistics, layers that take parts of a record for records, and losses that compare
records break them. So model and loss are tried on made-up rows, in the mode of training:

    state       no parameter or buffer changes in a forward pass, not in one bit
    company     the gradient of 2, 3 and 7 rows by plain automatic differentiation is the sum of
                the rows' own, whatever engine clips
    sum         the clipped sum of 2, 3 and 7 rows is the sum of the rows' own, to 2^-30 of a
                clipping length a row
    clip        a row's own share has a norm of at most CLIP_UNITS, for gradients above the clip
                and below it
    gradient    a share is the clipped gradient that plain automatic differentiation finds for the
                row alone

at the weights as given and at others near them. The rows have the shape and kind of the records and
nothing else of them, so a refusal says nothing about records. Labels are 0, because their number is
not known here.

A trial is no proof. It is assumed that model and loss do the same on records as on these rows: they
do not react to other labels, batch sizes or values, keep nothing between calls where the trial does
not look, and draw random numbers in dropout modules only (which are off in the trial, and treat
records one by one).
"""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.descent import is_whole
from confide.client.training.engines.choice import make_clipper
from confide.client.training.engines.fixed_shapes import without_dropout
from confide.client.training.engines.parts import Loss, checked
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import CLIP_UNITS

# Features and targets.
Rows = tuple[Tensor, Tensor]

# Without a common divisor, so that no inner dimension of a model fits all of them.
_SIZES = (2, 3, 7)
_ROWS = max(_SIZES)
# Far above rounding errors of float64, and far below the effect of batch statistics.
_COMPANY = 2.0**-30 * CLIP_UNITS
# The same beside the length of gradients.
_MIXED = 2.0**-30
# Above the clipper's own margin.
_GRADIENT = 1e-5 * CLIP_UNITS


def made_up(features: NDArray[Any], targets: NDArray[Any], device: torch.device) -> Rows:
    """Rows with the shape and kind of the records and nothing else of them.

    Features are numbers of several scales, or bits; targets are in [0, 1], or labels of 0.
    """
    chance = torch.Generator().manual_seed(1)
    shape = (_ROWS, *features.shape[1:])
    rows = torch.randn(shape, generator=chance, dtype=torch.float64)
    scales = torch.tensor([1 / 4, 1.0, 4.0], dtype=torch.float64)[torch.arange(_ROWS) % 3]
    rows = (
        (rows > 0).double()
        if is_whole(features)
        else rows * scales.view(-1, *[1] * (len(shape) - 1))
    )
    others = (_ROWS, *targets.shape[1:])
    labels = torch.zeros(others, dtype=torch.int64)
    numbers = torch.rand(others, generator=chance, dtype=torch.float64)
    return rows.to(device), (labels if is_whole(targets) else numbers).to(device)


def probe(model: nn.Module, loss: Loss, rows: Rows, *, engine: str) -> None:
    """Refuse a model in training mode, or a loss, that mixes these made-up rows.

    Only copies of the model are used, and torch's random generators are left as they were.
    """
    device, shape = rows[0].device, tuple(rows[0].shape[1:])
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            _probe(model, loss, rows, engine=engine)
    except BadInput:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        raise BadInput(
            f"{type(model).__name__} or its loss fails on 1 to {_ROWS} made-up rows of shape "
            f"{shape}: {error}; accepted are batches of any size, 1 included, "
            "and labels of 0"
        ) from error


def _probe(model: nn.Module, loss: Loss, rows: Rows, *, engine: str) -> None:
    plain, tried = (without_dropout(model) for _ in range(2))
    before = _state(plain)
    # All rows at once come first: with one, batch normalisation fails before it shows what it
    # changes.
    checked(loss(plain(rows[0]), rows[1]), _ROWS)
    _check_state(plain, before)
    here = _gradients(plain, loss, rows)
    _check_company(plain, loss, rows, alone=here)
    _move(plain)
    near = _gradients(plain, loss, rows)
    _check_company(plain, loss, rows, alone=near)
    norms = torch.cat([here, near]).norm(dim=1)
    norms = norms[norms.isfinite() & (norms > 0)]
    if not len(norms):
        raise _refusal(model, "no made-up row has a gradient, so a trial shows nothing")
    # Not the clip of the training: at the median some gradients are longer and some are not,
    # whatever the model's scale.
    clip = float(norms.median())
    clipped = make_clipper(tried, loss, clip, engine=engine, like=rows, batch=_ROWS, trial=True)
    for own in (here, near):
        before = _state(tried)
        shares = torch.stack([clipped(*row)[1] for row in _each(rows)])
        _check_shares(model, shares, own, clip=clip)
        for size in _SIZES:
            apart = clipped(*_first(rows, size))[1] - shares[:size].sum(dim=0)
            if not float(apart.norm()) <= size * _COMPANY:
                raise _refusal(
                    model,
                    f"the clipped gradients of {size} made-up rows do not add up to those of each "
                    "row alone",
                )
        _check_state(tried, before)
        _move(tried)


def _each(rows: Rows) -> list[Rows]:
    """Every row by itself."""
    return [(rows[0][i : i + 1], rows[1][i : i + 1]) for i in range(_ROWS)]


def _first(rows: Rows, size: int) -> Rows:
    return rows[0][:size], rows[1][:size]


def _check_shares(model: nn.Module, shares: Tensor, own: Tensor, *, clip: float) -> None:
    norms = own.norm(dim=1, keepdim=True)
    # A record whose gradient is no number is left out.
    expected = torch.where(norms.isfinite(), own * CLIP_UNITS / norms.clamp(min=clip), 0.0)
    if not float(shares.norm(dim=1).max()) <= CLIP_UNITS:
        raise _refusal(model, "a made-up row's share of a sum is longer than the clip")
    if not float((shares - expected).norm(dim=1).max()) <= _GRADIENT:
        raise _refusal(model, "a made-up row's share of a sum is not its gradient")


def _gradients(model: nn.Module, loss: Loss, rows: Rows) -> Tensor:
    """The gradient of each row alone, by plain automatic differentiation."""
    return torch.stack([_gradient(model, loss, row) for row in _each(rows)])


def _gradient(model: nn.Module, loss: Loss, rows: Rows) -> Tensor:
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    total = loss(model(rows[0]), rows[1]).sum()
    parts = torch.autograd.grad(total, trained, allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def _check_company(model: nn.Module, loss: Loss, rows: Rows, *, alone: Tensor) -> None:
    """Compare the gradient of several rows with the sum of those of each row alone.

    An engine that takes one record at a time would not show that others change it.
    """
    for size in _SIZES:
        own = alone[:size]
        if not bool(own.isfinite().all()):
            continue
        apart = _gradient(model, loss, _first(rows, size)) - own.sum(dim=0)
        if not float(apart.norm()) <= _MIXED * float(own.norm(dim=1).sum()):
            raise _refusal(
                model,
                f"the gradients of {size} made-up rows do not add up to those of each row alone",
            )


def _move(model: nn.Module) -> None:
    """Move to weights nearby, the same for every copy; weights of 0 hide what depends on them."""
    chance = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                change = (
                    torch.rand(parameter.shape, generator=chance, dtype=torch.float64).to(
                        parameter.device
                    )
                    - 0.5
                )
                parameter.add_(0.2 * change * (parameter.abs() + 0.1))


def _state(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers, bit for bit."""
    everything = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        name: value.detach().clone().reshape(-1).view(torch.uint8)
        for name, value in everything.items()
    }


def _check_state(model: nn.Module, before: dict[str, Tensor]) -> None:
    after = _state(model)
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after or not torch.equal(before[name], after[name]):
            owner = type(model.get_submodule(name.rpartition(".")[0])).__name__
            raise _refusal(
                model,
                (
                    f"its forward pass changes {name} (of {owner}), which would tell of records or "
                    "mix them"
                ),
            )


def _refusal(model: nn.Module, found: str) -> BadInput:
    return BadInput(
        f"{type(model).__name__} cannot be trained record by record: {found}; accepted are models "
        "and losses that treat every record by itself and keep nothing of it, such as group or "
        "layer normalisation in place of batch normalisation, with dropout as modules alone. Parts "
        "that stay as they are can be applied to the features before training"
    )
