"""run.json, graph.json, suppressed.json and absent.json: their fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphforget.errors import InputError, OtherVersion
from graphforget.files import error_reason, read_bytes
from graphforget.graph.reach import Reach
from graphforget.json_files import parse_json, read_json
from graphforget.privacy.salt import new_salt
from graphforget.request.hashed_items import HashedItems
from graphforget.runs.layout import ABSENT, EARLIER_FORMAT, FORMAT, LIMITS, RUN_FILE, SUPPRESSED, DamagedRun, checksum
from graphforget.training.recipe import HistoryEntry, Recipe
from graphforget.validation import LARGEST_STORED, named_in_files, read_fields


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """run.json. What follows from the rest is written for people and not read."""

    format: int
    recipe: Recipe
    reach: Reach
    certification_blockers: tuple[str, ...] = named_in_files("obstacles")
    strongly_convex: bool
    converged: bool
    objective: float
    gradient_norm: float
    graph_digest: str
    seconds: float
    noise: float
    history: tuple[HistoryEntry, ...]
    sha256: dict[str, Any]
    releases: tuple[float, ...] = ()  # from here on missing in the earlier format
    graph_salt: str = field(default_factory=lambda: new_salt().hex())
    notes: tuple[str, ...] = ()
    audience: Any = None
    parameters: Any = None
    certifiable: Any = None
    gradient_norm_over_mu: Any = None
    releases_left: Any = None
    versions: Any = None

    @property
    def counted_releases(self) -> int | None:
        """How many more releases the recipe covers; None where it covers none. `Trained.releases_left` is the same."""
        if not self.strongly_convex or self.certification_blockers or self.recipe.objective_noise:
            return None
        return self.recipe.releases_left(self.releases)

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.graph_salt):
            raise InputError("graph_salt in run.json is no text of 64 hexadecimal digits")
        numbers = (self.gradient_norm, self.seconds, self.noise, *self.releases)
        if min(numbers) < 0 or max(numbers) > LARGEST_STORED:
            raise InputError(f"run.json holds a number that is negative or over {LARGEST_STORED:g} where none can be")


@dataclass(frozen=True)
class GraphFile:
    """graph.json."""

    num_classes: int
    directed: bool
    subject_ids: tuple[str, ...] | None
    column_names: tuple[str, ...] | None
    class_names: tuple[str, ...] | None
    name: str
    digit_ids: bool
    num_columns: int
    graph_ids: tuple[str, ...] | None = None  # only in the files of a collection of graphs
    next_number: int = 0  # only if the last node is gone
    relation_names: tuple[str, ...] | None = None  # only of a graph with relations


def read_run_file(folder: Path) -> RunFile:
    """The fields of run.json.

    Raises:
        InputError: There is no run.json, so this is not a run directory.
        OtherVersion: This version cannot continue the run.
        DamagedRun: run.json cannot be read, or is not as it was written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a run directory: it is a file")
    try:
        return _fields(folder)
    except FileNotFoundError as error:
        raise InputError(f"{folder} is not a run directory: {folder / RUN_FILE} is missing") from error
    except OSError as error:
        raise DamagedRun(f"{folder} cannot be read: {error_reason(error)}") from error
    except OtherVersion:
        raise
    except InputError as error:
        raise DamagedRun(f"{folder} is damaged: {error}") from error


def _fields(folder: Path) -> RunFile:
    content = read_json(folder / RUN_FILE, name=RUN_FILE, largest=LIMITS[RUN_FILE])
    format = content.get("format") if isinstance(content, dict) else None
    if type(format) is not int or format not in (FORMAT, EARLIER_FORMAT):
        message = f"{folder} has format {str(format)[:80]}"
        raise OtherVersion(f"{message}, this version reads format {FORMAT}")
    run = read_fields(RunFile, content, RUN_FILE)
    if run.format == EARLIER_FORMAT and not run.strongly_convex:
        message = f"{folder} is a run of an earlier version, whose training of networks cannot be replayed"
        raise OtherVersion(f"{message}: train it again")
    return run


def read_suppressed(folder: Path, run: RunFile) -> HashedItems | None:
    """The hashes of what requests deleted."""
    if SUPPRESSED not in run.sha256:
        return None
    try:
        written = read_bytes(folder / SUPPRESSED, largest=LIMITS[SUPPRESSED])
        if checksum(written) != run.sha256[SUPPRESSED]:
            raise InputError("it is not the file that was written")
        content = parse_json(written, name=SUPPRESSED)
        return HashedItems.from_dict(content.get("suppressed") if isinstance(content, dict) else None)
    except InputError as error:
        raise DamagedRun(f"{folder} is damaged: {SUPPRESSED}: {error}") from error


def read_absent(folder: Path, suppressed: HashedItems | None) -> HashedItems | None:
    """What was asked for while it was absent. It changes between releases, so no checksum and no digest covers it."""
    try:
        content = parse_json(read_bytes(folder / ABSENT, largest=LIMITS[ABSENT]), name=ABSENT)
        listed = HashedItems.from_dict(content.get("absent") if isinstance(content, dict) else None)
    except FileNotFoundError:
        return None
    except (InputError, OSError) as error:
        raise DamagedRun(f"{folder} is damaged: {ABSENT}: {error}") from error
    if suppressed is not None and suppressed.key != listed.key:
        raise DamagedRun(f"{folder} is damaged: {ABSENT} has another key than {SUPPRESSED}")
    return listed
