"""The one error that means "what you gave me cannot be used"."""


class InputError(ValueError):
    """Bad input, told in one sentence: what was given and what is allowed. Nothing has been changed."""


class OtherVersion(InputError):
    """What was given was written by another version of this package. That says nothing against it."""


class Refused(Exception):
    """What was asked could not be done as promised; the message is one sentence for people. Nothing was released."""


class Mismatch(Exception):
    """A certificate does not hold, and the message names the first thing that does not match."""
