"""Clipped gradients of linear layers and ReLU under cross-entropy or squared error, exactly.

A batched product rounds a row differently in batches of different sizes, and with weights chosen
for it the last bit of one pre-activation decides a ReLU or a whole softmax. Then one record more
would change the gradients of all others, and no bound on the effect of one record would hold. So
nothing here is rounded in a product: features, weights, hidden values and signals are integers in
float64, on grids so coarse that every sum of products stays within 2^53. Such sums are exact in any
order, with fused operations or without. With n = width + 1 terms a sum,

    weights         at most 2^20, in units of 2^-15
    values, signals at most 2^b in magnitude, where b(width) is such that
                    n 2^(20 + b) <= 2^53 and n 2^(2b) <= 2^53

so the products with weights are exact, and so are the squared norms. The steps that do round
(clamping to the grid, softmax, norm, clipping factor) are single IEEE 754 operations on each
element alone. The inputs, signals and clipping factor of a record are therefore a function of the
record and of public weights, bit for bit, whichever records are in the batch.

A layer's gradient is the outer product of its signal and its input, so its squared norm is |d|^2
(|h|^2 + 1), bias included (Goodfellow 2015). Numbers are zero or between 2^-100 and 2^150
throughout: nothing overflows and nothing is subnormal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.protocol.architectures.base import Span, scaled, shares
from confide.protocol.exact.lattice import CLIP_UNITS, MOST_BATCH, chunk_rows
from confide.protocol.methods.training.mean_weights import WEIGHT_BOUND

Floats = NDArray[np.float64]

_WEIGHT_FRACTION = 15
_WEIGHT_BITS = 20
# Hidden values and the signals that reach hidden layers are clamped to 2^5; features and the last
# signals are at most 1.
_HIDDEN_BITS = 5
_EXPONENTIAL_BITS = 30
# Larger than the rounding error of float64 in a norm and its factor, about 2^-50.
_MARGIN = 1e-6


def value_bits(width: int) -> int:
    """How many bits a value or signal of a layer of this width may have: 16 to 26."""
    terms = width.bit_length()
    return min(53 - _WEIGHT_BITS - terms, (53 - terms) // 2)


@dataclass(frozen=True, eq=False)
class Traces:
    """The inputs and signals of each layer and record, as integers, and their fractional bits."""

    inputs: list[Floats]
    signals: list[Floats]
    input_fractions: list[int]
    signal_fractions: list[int]

    def factors(self, clip: float) -> Floats:
        """The factors that scale each record's gradient to lattice units.

        Scaled, a gradient has a norm of at most CLIP_UNITS.
        """
        squares = np.zeros(len(self.inputs[0]))
        for h, d, f, g in self.by_layer():
            own = np.einsum("ij,ij->i", d, d) * (np.einsum("ij,ij->i", h, h) + 4.0**f)
            squares += own * 4.0 ** -(f + g)
        return CLIP_UNITS * (1 - _MARGIN) / np.maximum(clip, np.sqrt(squares))

    def by_layer(self) -> Iterator[tuple[Floats, Floats, int, int]]:
        return zip(
            self.inputs, self.signals, self.input_fractions, self.signal_fractions, strict=True
        )


class Stack:
    """Fully connected layers whose weights are public and rounded to the grid of exact sums."""

    def __init__(
        self,
        widths: tuple[int, ...],
        weights: NDArray[Any],
        *,
        clip: float,
        centre: float = 0.0,
        span: Span | None = None,
        kept: Floats | None = None,
    ) -> None:
        """`span` is the range of targets, if the network learns numbers instead of labels.

        `kept` is memory for two rows of weights, which a caller with many steps makes once: the
        system takes longer to hand out and take back so much memory in every step than products do.
        """
        self._kept = np.empty((2, len(weights))) if kept is None else kept
        rounded = bounded(weights, out=self._kept[0])
        rounded *= 2.0**_WEIGHT_FRACTION
        np.rint(rounded, out=rounded)
        self._layers = list(by_layer(widths, rounded))
        self._bits = [value_bits(width) for width in widths]
        hidden = [bits - _HIDDEN_BITS for bits in self._bits]
        self._input_fractions = [self._bits[0], *hidden[1:-1]]
        self._signal_fractions = [*hidden[1:-1], self._bits[-1]]
        self._clip, self._centre, self._span = clip, centre, span
        self._labels, self._widths = widths[-1], widths
        # An input and a signal of every layer, in float64; products and sums of a layer take about
        # as much again.
        self._rows = chunk_rows(2 * 8 * sum(widths))

    def clipped_sum(self, features: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
        """The sum of all gradients, each clipped to CLIP_UNITS, rounded once.

        `lattice.sensitivity` says why rounding once is enough.
        """
        assert len(features) <= MOST_BATCH
        total = self._kept[1]
        if not len(features):
            # Without a record there is no chunk that writes it.
            total[:] = 0.0
        for start in range(0, len(features), self._rows):
            part = slice(start, start + self._rows)
            self._add_chunk(self.traces(features[part], labels[part]), total, first=start == 0)
        return np.rint(total, out=total).astype(np.int64)

    def _add_chunk(self, traces: Traces, total: Floats, *, first: bool) -> None:
        """Add the sum of a chunk; the first is written in place, which saves a copy."""
        factors = traces.factors(self._clip)
        layers = zip(traces.by_layer(), by_layer(self._widths, total), strict=True)
        for (h, d, f, g), (matrix, bias) in layers:
            kept = d * (factors * 2.0 ** -(f + g))[:, None]
            sums = kept.sum(axis=0) * 2.0**f
            if first:
                np.matmul(kept.T, h, out=matrix)
                bias[:] = sums
            else:
                matrix += kept.T @ h
                bias += sums

    def predicted(self, features: NDArray[Any]) -> NDArray[np.int64]:
        """The label of the highest output of each record, the first of equal ones."""
        starts = range(0, len(features), self._rows)
        parts = [self._forward(features[i : i + self._rows])[1].argmax(axis=1) for i in starts]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def traces(self, features: NDArray[Any], labels: NDArray[Any]) -> Traces:
        """Run all layers forward and backward; a label without an output has no signal."""
        inputs, logits = self._forward(features)
        signals = [self._last_signal(logits, labels)]
        for place in range(len(self._layers) - 1, 0, -1):
            signal = signals[0] @ self._layers[place][0]
            signal *= 2.0 ** (
                self._signal_fractions[place - 1] - self._signal_fractions[place] - _WEIGHT_FRACTION
            )
            bits = self._bits[place]
            signal = _rounded(signal, -(2.0**bits), bits)
            signal *= inputs[place] > 0
            signals.insert(0, signal)
        return Traces(inputs, signals, self._input_fractions, self._signal_fractions)

    def _forward(self, features: NDArray[Any]) -> tuple[list[Floats], Floats]:
        """The inputs of every layer, as integers, and the outputs of the last."""
        inputs = [np.rint(scaled(features, self._centre) * 2.0 ** self._bits[0])]
        outputs = inputs[0]
        for place, (matrix, bias) in enumerate(self._layers):
            fraction = self._input_fractions[place]
            outputs = inputs[place] @ matrix.T
            outputs += bias * 2.0**fraction
            if place < len(self._layers) - 1:
                outputs *= 2.0 ** (self._input_fractions[place + 1] - fraction - _WEIGHT_FRACTION)
                inputs.append(_rounded(outputs, 0.0, self._bits[place + 1]))
        return inputs, outputs * 2.0 ** -(self._input_fractions[-1] + _WEIGHT_FRACTION)

    def _last_signal(self, logits: Floats, labels: NDArray[Any]) -> Floats:
        """The signal of the outputs: probabilities, less 1 at the label.

        That of a number is half its distance from the target, (f - t) / 2, which is at most 1 while
        the output is within the span: the gradient of (f - t)^2 / 4.
        """
        one = 2.0 ** self._bits[-1]
        if self._span is not None:
            half = (logits[:, 0] - shares(labels, self._span)) / 2
            # A target that is no number has no signal.
            half = np.clip(np.nan_to_num(half, nan=0.0), -1.0, 1.0)
            return np.asarray(np.rint(half * one)[:, None] + 0.0)
        signal = np.rint(_softmax(logits) * one)
        known = (labels >= 0) & (labels < self._labels)
        rows = np.flatnonzero(known)
        signal[rows, labels[rows].astype(np.int64)] -= one
        signal[~known] = 0.0
        return signal


def by_layer(
    widths: tuple[int, ...], weights: NDArray[Any]
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Return the matrix (outputs, inputs) and biases of every layer."""
    start = 0
    for inputs, outputs in pairwise(widths):
        end = start + inputs * outputs
        yield weights[start:end].reshape(outputs, inputs), weights[end : end + outputs]
        start = end + outputs


def bounded(weights: NDArray[Any], *, out: Floats | None = None) -> Floats:
    """Weights within their public bound, in memory of their own or in `out`."""
    found = np.empty(len(weights)) if out is None else out
    found[:] = weights
    found[np.isnan(found)] = 0.0
    return np.clip(found, -WEIGHT_BOUND, WEIGHT_BOUND, out=found)


def _rounded(values: Floats, least: float, bits: int) -> Floats:
    """Round to integers from `least` to 2^bits, in place.

    A sum that is 0 loses its sign, which depends on the order of its terms.
    """
    np.clip(values, least, 2.0**bits, out=values)
    np.rint(values, out=values)
    return np.add(values, 0.0, out=values)


def _softmax(logits: Floats) -> Floats:
    """Softmax whose exponentials are multiples of 2^-30, so that their sum is exact.

    Exponentials are their series to the eighth term around multiples of log 2, with a relative
    error below 2^-30. The series is computed one operation at a time, because exponentials of
    libraries differ between the middle of a vector and its end.
    """
    below = np.maximum(logits - logits.max(axis=1, keepdims=True), -32.0)
    twos = np.rint(below * 1.4426950408889634)
    rest = below - twos * 0.6931471805599453
    series = rest * (1 / 8) + 1.0
    for term in range(7, 0, -1):
        series *= rest
        series *= 1 / term
        series += 1.0
    odds = np.rint(np.ldexp(series, twos.astype(np.int32) + _EXPONENTIAL_BITS))
    return odds / odds.sum(axis=1, keepdims=True)
