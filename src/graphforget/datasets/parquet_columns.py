"""What stands in the columns of Parquet files: labels, ids, attributes and sides of the split."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphforget.errors import InputError
from graphforget.graph.row_part import TEST, TRAIN, VALIDATION
from graphforget.graph.validation import LARGEST

TEXT = ("string", "large_string", "string_view")
WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
FLOATING = ("halffloat", "float", "double")
ROLES = {"train": TRAIN, "val": VALIDATION, "test": TEST, "": 0, None: 0}


def type_name(kind: Any) -> str:
    """The name of a column's type; of a dictionary, that of its values."""
    return str(kind.value_type if str(kind).startswith("dictionary<") else kind)


def labels_of(column: Any) -> list[str]:
    """The name of each node's class; "" for a node without a label, which is null, NaN or no word.

    Whole numbers may stand in a column of floating-point numbers: there they have room for NaN.
    """
    kind = type_name(column.type)
    if kind not in (*TEXT, *WHOLE, *FLOATING, "bool", "null"):
        raise InputError(f"the column 'label' has the type {kind}, labels are words or whole numbers")
    values = column.to_pylist()
    if kind not in FLOATING:
        return ["" if one is None else str(one).strip() for one in values]
    known = [None if one is None or one != one else one for one in values]  # NaN alone differs from itself
    for one in known:
        if one is not None and not float(one).is_integer():
            message = f"the column 'label' has the number {one:g}, labels are words or whole numbers"
            raise InputError(f"{message}: on ranks a model predicts classes")
    return ["" if one is None else str(int(one)) for one in known]


def ids_of(column: Any, name: str) -> list[bytes]:
    """The ids in a column of text or whole numbers. A floating-point number has no one spelling, so it is none."""
    kind = type_name(column.type)
    if kind not in (*TEXT, *WHOLE):
        raise InputError(f"the column {name!r} has the type {kind}, ids are text or whole numbers")
    if column.null_count:
        raise InputError(f"the column {name!r} has a row without an id")
    return [str(one).encode() for one in column.to_pylist()]


def numbers_of(column: Any, name: str, dtype: str) -> np.ndarray:
    """The values of an attribute."""
    kind = type_name(column.type)
    if kind not in (*WHOLE, *FLOATING, "bool"):
        raise InputError(f"the attribute {name!r} has the type {kind}, attributes are numbers")
    if column.null_count:
        raise InputError(f"the attribute {name!r} has a row without a value")
    result: np.ndarray = column.to_numpy(zero_copy_only=False).astype(dtype)
    if not np.isfinite(result).all():
        raise InputError(f"the attribute {name!r} has a value that is not finite")
    if (np.abs(result) > LARGEST).any():
        raise InputError(
            f"the attribute {name!r} has the value {np.abs(result).max():g}, up to {LARGEST:g} is possible"
        )
    return result


def roles_of(column: Any) -> list[int]:
    """The side of the split of each node."""
    kind = type_name(column.type)
    if kind not in (*TEXT, "null"):
        raise InputError(f"the column 'split' has the type {kind}, it holds train, val, test or nothing")
    names = column.to_pylist()
    strange = [name for name in names if name not in ROLES]
    if strange:
        raise InputError(f"the split is {strange[0]!r}, it must be train, val, test or nothing")
    return [ROLES[name] for name in names]
