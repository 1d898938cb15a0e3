"""Gaussian noise from the operating system's cryptographic source, rounded so that no digit of a sum reveals what the
noise was added to (docs/maths.md, section 7).
"""

from __future__ import annotations

import math
import os

import mpmath
import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.special import ndtri
from torch import Tensor

from graphforget.errors import InputError
from graphforget.validation import whole_number

DIGITS = 60  # of sums whose rounding float64 cannot decide
UNIT = 2.0**-53  # the largest relative error of one operation in float64


def noise(*, size: int, sigma: float, seed: int | None = None) -> Tensor:
    """`size` independent draws from `N(0, sigma^2)`, float64.

    Without a seed they come from a secret key of the operating system. With a seed they can be drawn again: whoever
    knows it can subtract the noise from the released weights. Seeds are for experiments, not for releases.
    """
    size = whole_number(size, "the number of draws")
    if not 0 <= sigma < math.inf:
        raise InputError(f"sigma is {sigma}, a finite number from 0 is needed")
    if seed is None:
        normal = _secure_normal(size)
    else:
        normal = np.random.default_rng(whole_number(seed, "the seed")).standard_normal(size)
    return torch.from_numpy(sigma * normal)


def with_noise(theta: Tensor, *, sigma: float, seed: int | None = None) -> Tensor:
    """`theta + N(0, sigma^2 I)`, rounded to a grid of `grid(sigma)`.

    Without the rounding, the last digits of a sum of floating-point numbers would reveal the summands (Mironov 2012).
    Rounding is post-processing, so it costs nothing of the guarantee. If float64 cannot decide to which point of the
    grid a sum has to be rounded, the sum is computed again with more digits.
    """
    step = grid(sigma)
    if seed is not None:
        return ((theta + noise(size=theta.numel(), sigma=sigma, seed=seed)) / step).round() * step
    bits = _random_words(2 * theta.numel()).reshape(2, theta.numel())
    normal = _normal_of(bits)
    places = (theta.numpy() + sigma * normal) / step  # a power of two: the division is exact
    points = np.round(places)
    error = 4 * UNIT * (np.abs(theta.numpy()) + 12 * sigma * (1 + np.abs(normal))) / step
    for unsure in np.flatnonzero(np.abs(np.abs(places - points) - 0.5) <= error):
        points[unsure] = _exact_point(float(theta[unsure]), bits[:, unsure], sigma=sigma, step=step)
    return torch.from_numpy(points * step)


def _exact_point(weight: float, bits: np.ndarray, *, sigma: float, step: float) -> float:
    """The point of the grid for one weight, computed with `DIGITS` digits."""
    with mpmath.workdps(DIGITS):
        further = mpmath.mpf(int.from_bytes(os.urandom(DIGITS // 2), "little")) / mpmath.mpf(256) ** (DIGITS // 2)
        leading = int(np.frexp(np.float64(int(bits[1]) >> 11))[1])
        mantissa = mpmath.mpf(1) / 2 + (mpmath.mpf(int(bits[0]) >> 12) + further) * mpmath.mpf(2) ** -53
        below = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mantissa * mpmath.mpf(2) ** (leading - 54))
        normal = below if int(bits[0]) & 1 else -below
        return float(mpmath.nint((mpmath.mpf(weight) + mpmath.mpf(sigma) * normal) / mpmath.mpf(step)))


def grid(sigma: float) -> float:
    """A power of two between sigma / 32 and sigma / 16: far above the rounding of float64, far below the noise."""
    return 2.0 ** (math.floor(math.log2(sigma)) - 4)


def rounding_tv_bound(theta: Tensor, *, sigma: float) -> float:
    """A bound on the total variation distance of `with_noise` from the rounding of exact Gaussian noise.

    A weight comes out on another point of the grid only if errors carry it over the middle between two, which has twice
    their mean size over the grid's as probability. Where float64 might do that, more digits decide; their errors, of
    the sum and of the draw, are `e (|theta_i| + 9 sigma)` with `e` of as many digits as the computation has, less the
    ten that the inverse of the error function may cost. (A draw in float64 is taken to be off by at most `8 u (1 +
    |z|)`; the tests look.)
    """
    unit = 10.0 ** (10 - DIGITS)
    return 2 * unit * (float(theta.abs().sum()) + 9 * theta.numel() * sigma) / grid(sigma)


def _secure_normal(size: int) -> np.ndarray:
    return _normal_of(_random_words(2 * size).reshape(2, size))


def _normal_of(words: np.ndarray) -> np.ndarray:
    """From 128 random bits a draw: a sign, and a place in the lower half with 52 bits after its leading one.

    A uniform number of 53 bits would be coarse in the tails, where its neighbours are far apart as normal numbers.
    """
    bits, more = words
    leading = np.frexp((more >> np.uint64(11)).astype(np.float64))[1]  # 53 if the first bit is set, and so on
    mantissa = 0.5 + ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-53
    lower_half = np.ldexp(mantissa, leading - 54)
    below = ndtri(lower_half)
    return np.where(bits & np.uint64(1), below, -below)


def _random_words(count: int) -> np.ndarray:
    """64 random bits each: AES-256 in counter mode under a fresh key from the operating system, ten times as fast."""
    stream = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(8 * count)), dtype=np.uint64)
