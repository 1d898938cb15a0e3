"""Bounds on the rounding errors of propagated rows (docs/maths.md, section 16).

The defect of a power is a bound on `||H_k - S H_{k-1}||_F`, as computed. `bounds` are bounds on the norms of rows.
"""

from __future__ import annotations

import numpy as np

UNIT = 2.0**-53  # the rounding unit of float64


def gamma(terms: np.ndarray | int) -> np.ndarray | float:
    """`k u / (1 - k u)`, twice: what second-order terms and the bounds' own rounding can add is far less."""
    return 2 * terms * UNIT / (1 - terms * UNIT)


def fresh_defects(counts: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Of each row that is a sum over so many senders and itself, with weights that were rounded."""
    return gamma(counts + 8) * bounds


def difference_defects(terms: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Of each row to which so many differences were added; `bounds` are those before and after, added."""
    return gamma(terms + 11) * bounds


def fresh_defect(counts: np.ndarray, bounds: np.ndarray) -> float:
    """`fresh_defects` of all these rows."""
    return float(np.linalg.norm(fresh_defects(counts, bounds)))


def difference_defect(terms: np.ndarray, bounds: np.ndarray) -> float:
    """`difference_defects` of all these rows."""
    return float(np.linalg.norm(difference_defects(terms, bounds)))
