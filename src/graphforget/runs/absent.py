"""Keeps out who asks to be forgotten while a run directory holds nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from graphforget.errors import InputError
from graphforget.files import error_reason
from graphforget.privacy.salt import new_salt
from graphforget.request.hashed_items import HashedItems
from graphforget.runs.layout import open_run, recover
from graphforget.runs.locks import run_lock
from graphforget.runs.run_file import read_absent, read_run_file, read_suppressed
from graphforget.runs.write import write_absent

MOST = 2**22  # hashes of both lists of a run, 310 MB as JSON: the next releases need room in suppressed.json


class ListFull(InputError):
    """A run directory can keep nobody else out."""


def keep_out(run: str | Path, hashed: Callable[[bytes], HashedItems]) -> None:
    """Adds keyed hashes to what no update of a run directory brings in by itself. It names nobody.

    The model and its certificate stay as they are. The next release takes the hashes into its own list.

    Args:
        run: The run directory.
        hashed: Gives the hashes under the key of the run's lists.

    Raises:
        ListFull: The lists would become too long, and the next release could not be written.
        InputError: The run directory cannot be read or written.
    """
    folder = Path(run).resolve()
    with run_lock(folder):
        recover(folder)
        with open_run(folder) as place:
            suppressed = read_suppressed(place, read_run_file(place))
            absent = read_absent(place, suppressed)
            listed = suppressed or absent
            key = new_salt() if listed is None else listed.key
            kept_out, more = absent or HashedItems(key), hashed(key)
            before = kept_out.joined(suppressed or kept_out)
            if not before.covers(more):
                if before.joined(more).size > MOST:
                    raise ListFull(f"{folder} has a list of {before.size:,} hashes, up to {MOST:,} are possible")
                try:
                    write_absent(place, kept_out.joined(more))
                except OSError as error:
                    raise InputError(f"{folder} cannot be written: {error_reason(error)}") from error
