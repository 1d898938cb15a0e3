"""One spelling of a name: an export in other letters, with other spaces or as a decimal number keeps it."""

from __future__ import annotations

import re
import unicodedata

WHOLE_NUMBER = re.compile(r"(\d+)\.0+")
SHORT = 4  # a name of fewer characters is part of many words
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


def mentions(text: str, name: str) -> bool:
    """Whether a text has this name in any spelling: as a word of its own, or, if it is not short, anywhere.

    A name with letters is looked for without its hyphens, dots and other signs too.

    Example:
        >>> mentions("consent of PATIENT 17", "patient-17"), mentions("consent of 3 May", "3"), mentions("Mayor", "may")
        (True, True, False)
    """
    wanted, given = canonical_name(name), canonical_name(text)
    bare = _alphanumeric(wanted)
    if len(bare) >= SHORT and not bare.isdigit() and bare in _alphanumeric(given):
        return True
    if wanted not in given:
        return False
    word = rf"(?<!\w){re.escape(wanted)}(?!\w)"
    folded = unicodedata.normalize("NFKC", text).casefold()
    return len(wanted) >= SHORT or re.search(word, folded) is not None


def _alphanumeric(name: str) -> str:
    """The letters and digits of a name."""
    return "".join(filter(str.isalnum, name))
