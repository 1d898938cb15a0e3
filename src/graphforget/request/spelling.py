"""One spelling of a name: an export in other letters, with other spaces or as a decimal number keeps it."""

from __future__ import annotations

import re
import unicodedata

WHOLE_NUMBER = re.compile(r"(\d+)\.0+")
LEFT_OUT = ("C", "Z")  # Unicode categories: control and format characters, separators


def canonical_name(name: str) -> str:
    """The name in NFKC without case, spaces, invisible characters and the ".0" of a whole number.

    A name of nothing else stays as it is.

    Example:
        >>> canonical_name(" Patient-17\\u200b "), canonical_name("17.0")
        ('patient-17', '17')
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    visible = "".join(one for one in folded if not unicodedata.category(one).startswith(LEFT_OUT))
    number = WHOLE_NUMBER.fullmatch(visible)
    return number[1] if number else visible or name
