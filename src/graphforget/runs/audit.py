"""The audit of a run directory: of the deletion that led to it, or a rehearsal of the next one."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import nn

from graphforget.audits.audit import Audit, Release, audit
from graphforget.certificates.document import Certificate
from graphforget.errors import InputError, Mismatch, Refused
from graphforget.files import write_whole
from graphforget.graph.graph import Graph
from graphforget.request.request import Request
from graphforget.request.sampling import Drawing, draw_request
from graphforget.runs.layout import (
    AUDIT_PICTURE,
    AUDIT_PIECES,
    AUDIT_RESULT,
    CERTIFICATE,
    REHEARSAL,
    inside_run,
    open_run,
)
from graphforget.runs.read import load_run
from graphforget.runs.released import load_released
from graphforget.training.environment import versions
from graphforget.training.losses import Loss, LossFunction
from graphforget.unlearning.registry import find


def audit_run(
    run: str | Path,
    *,
    before: str | Path | None = None,
    request: str | Path | Request | None = None,
    out: str | Path | None = None,
    keep: bool = False,
    model: nn.Module | None = None,
    loss: Loss | LossFunction | None = None,
    seed: int = 0,
    **options: Any,
) -> Audit:
    """Audits a run directory.

    With `before`, the run that it came from, and the `request` that led from there to here, the deletion itself is
    audited. Without, it is rehearsed: `request` (`node:5%`, or anything that `Drawing` knows) is drawn from what the
    run still holds, and forgotten by the method of its last certificate, with its epsilon, delta and sigma; further
    options of the method have to be given again. The run directories stay as they are.

    The result, a plot and, until it is done, the finished pieces go to the folder `out`; `keep` leaves the pieces
    there, which tell of what was deleted. `model` and `loss` are one's own, where the run has any. Options are those
    of `audit`.
    """
    if out is not None:
        _check_place(Path(out))
    told = _last_certificate(run)
    if told is not None:
        asked = {"delta": told.delta or None, "epsilon": told.epsilon or None}
        asked["sigma"] = (told.sigma or None) if find(told.method).takes_sigma else None  # it may have been asked for
        options = {"method": told.method, **asked} | {name: v for name, v in options.items() if v is not None}
    options = {name: value for name, value in options.items() if value is not None}
    after = None
    own: Any = {"model": model, "loss": loss}
    if before is None:
        trained, graph = load_run(run, **own)
        what = request if isinstance(request, Request) else _drawn_or_read(request, graph, seed)
    else:
        if told is None:
            raise InputError(f"{run} holds no certificate: it has not answered any request")
        if request is None or (isinstance(request, str) and not Path(request).is_file()):
            raise InputError("to audit the deletion itself, its request file is needed beside the run from before it")
        if options.get("method", told.method) != told.method:
            raise InputError(f"the deletion was made by {told.method!r}, it cannot be audited as {options['method']!r}")
        what = request if isinstance(request, Request) else Request.from_file(request)
        trained, graph = load_run(before, **own)
        private, left = load_run(run, **own)
        if graph.without(what).digest != left.digest:
            raise Mismatch(f"the graph of {run} is not that of {before} without what the request names")
        after = Release(private, load_released(run, **own)[0], told)
    pieces = None if out is None else Path(out) / AUDIT_PIECES
    resumed = pieces is not None and pieces.exists()
    try:
        found = audit(trained, graph, what, after=after, seed=seed, folder=pieces, **options)
    except (InputError, Refused, Mismatch):
        if pieces is not None and not resumed:  # going on would not help
            shutil.rmtree(pieces, ignore_errors=True)
        raise
    found = dataclasses.replace(found, settings=found.settings | _about(told, rehearsed=before is None))
    if out is not None:
        _write(Path(out), found)
        if not keep:
            shutil.rmtree(Path(out) / AUDIT_PIECES)
    return found


def _about(told: Certificate | None, *, rehearsed: bool) -> dict[str, Any]:
    """What the audit is of: a deletion and its certificate, or none that has happened."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    of = {"rehearsal": rehearsed, "certificate": None if rehearsed or told is None else told.id}
    return of | {"made": made, "versions": versions()}


def _check_place(out: Path) -> None:
    if (out / AUDIT_RESULT).exists():
        raise InputError(f"{out} holds the result of an audit already, remove it or choose another folder")
    if inside_run(out / AUDIT_RESULT):
        raise InputError(f"{out} lies in the run directory of a model, which an audit leaves as it is")


def _drawn_or_read(request: str | Path | None, graph: Graph, seed: int) -> Request:
    if request is not None and Path(request).is_file():
        return Request.from_file(request)
    return draw_request(graph, Drawing.parse(str(request or REHEARSAL)), seed=seed)


def _last_certificate(run: str | Path) -> Certificate | None:
    with open_run(run) as place:
        return Certificate.read(place / CERTIFICATE) if (place / CERTIFICATE).exists() else None


def _write(folder: Path, found: Audit) -> None:
    from graphforget.audits.figure import audit_figure  # matplotlib, which nothing else of the package waits for

    content, picture = found.to_dict(), io.BytesIO()
    audit_figure(content["rows"]).savefig(picture, format="png", dpi=200, bbox_inches="tight")
    # Of a single person's deletion every number is about that person.
    write_whole(folder / AUDIT_PICTURE, picture.getvalue(), mode=0o600)
    write_whole(folder / AUDIT_RESULT, (json.dumps(content, indent=2) + "\n").encode(), mode=0o600)
