"""The integer lattice on which DP-SGD adds its noise, and how far one record can move a sum on it.

One clipping length is CLIP_UNITS. A batch's clipped gradients are added in float64 and rounded to
integers once, noise is discrete Gaussian on the integers, and the update is a function of the noisy
integers and public numbers alone. So no bit of a released weight tells float noise from float noise
plus a gradient.

Two batches that differ by one record have integer sums at most `sensitivity` apart in L2 norm:

    CLIP_UNITS      the record's own gradient, clipped
    sqrt(weights)   rounding both sums: at most 1/2 a coordinate each
    FLOAT_MARGIN    what float64 loses in both sums, and what a gradient may depend on the records
    beside it

Float64 adds n = MOST_BATCH vectors of norm CLIP_UNITS, in chunks of m, with an error of at most ((m
+ 2) + n/m) 2^-53 n CLIP_UNITS in norm (Higham 2002, section 3.1). For m from LEAST_CHUNK to
MOST_CHUNK the first factor is at most 4354 (it is convex in m, and 4354 at both ends), so the error
is below 2^12; twice that for two sums. The rest, 2^13, allows each of the n gradients to move by
2^-39 of a clipping length when its company changes.
"""

import math

CLIP_UNITS = 1 << 32
MOST_BATCH = 1 << 20
LEAST_CHUNK = 1 << 8
MOST_CHUNK = 1 << 12
CHUNK_BYTES = 1 << 28
MOST_WEIGHTS = 4_000_000
FLOAT_MARGIN = 1 << 14


def sensitivity(weights: int) -> int:
    """How far, in L2 norm, one record can move the integer sums of `weights` coordinates."""
    return CLIP_UNITS + math.isqrt(weights - 1) + 1 + FLOAT_MARGIN


def chunk_rows(row_bytes: int) -> int:
    """How many rows to add at a time: those that fit into CHUNK_BYTES, within the bound above."""
    return min(max(CHUNK_BYTES // row_bytes, LEAST_CHUNK), MOST_CHUNK)
