"""Rounds numbers before they are shown."""

from __future__ import annotations

from decimal import Decimal


def rounded_up(value: float) -> float:
    """To two significant digits, never down; a number of two digits stays as it is."""
    nearest = f"{value:.1e}"
    if float(nearest) >= value:
        return float(nearest)
    unit = Decimal(10) ** (int(nearest.partition("e")[2]) - 1)
    return float(Decimal(nearest) + unit)
