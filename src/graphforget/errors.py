"""Every exception that this package raises on purpose."""

from __future__ import annotations

from typing import Any


class InputError(ValueError):
    """Bad input. The message is one sentence: what was given and what is allowed. Nothing has been changed."""


class OtherVersion(InputError):
    """A file was written by another version of this package. It may be intact."""


class Refused(Exception):
    """The request could not be fulfilled with its guarantee. The message says why. Nothing was released."""


class FloorMissed(Refused):
    """The noised model scores under the floor. Nothing was released, and the noise that was drawn counts as a release.

    `trained` is the model to go on from, with that release counted; `annex` and `ratio` are for its ledger.
    """

    def __init__(self, message: str, *, trained: Any, annex: Any, ratio: float | None) -> None:
        super().__init__(message)
        self.trained, self.annex, self.ratio = trained, annex, ratio


class Mismatch(Exception):
    """A certificate does not hold. The message names the first thing that does not match."""
