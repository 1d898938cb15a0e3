"""The audit of a run directory: of the deletion that led to it, or a rehearsal of the next one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from graphforget import rundir
from graphforget.audit import Audit, Release, audit
from graphforget.certificates.document import Certificate
from graphforget.draw import Drawing, drawn
from graphforget.errors import InputError, Mismatch
from graphforget.records import load_released
from graphforget.report.audit_figure import audit_figure
from graphforget.request import Request

REHEARSED = "node:5%"  # what a rehearsal forgets, unless told
RESULT, PICTURE, PIECES = "audit.json", "audit.png", "pieces"


def audit_run(
    run: str | Path,
    *,
    before: str | Path | None = None,
    request: str | Path | Request | None = None,
    out: str | Path | None = None,
    keep: bool = False,
    seed: int = 0,
    **options: Any,
) -> Audit:
    """Audits a run directory.

    With `before`, the run that it came from, and the `request` that led from there to here, the deletion itself is
    audited. Without, it is rehearsed: `request` (`node:5%`, or anything that `Drawing` knows) is drawn from what the
    run still holds, and forgotten by the method of its last certificate, with its epsilon, delta and sigma; further
    options of the method have to be given again. The run directories stay as they are.

    The result, a plot and, until it is done, the finished pieces go to the folder `out`; `keep` leaves the pieces
    there, which tell of what was deleted. Options are those of `audit`.
    """
    if out is not None and (Path(out) / RESULT).exists():
        raise InputError(f"{out} holds the result of an audit already, remove it or choose another folder")
    told = _last_certificate(run)
    if told is not None:
        asked = {"delta": told.delta, "epsilon": told.epsilon if told.level == "certified" else None}
        asked["sigma"] = (told.sigma or None) if told.method == "idea" else None  # it may have been asked for
        options = {"method": told.method, **asked} | {name: v for name, v in options.items() if v is not None}
    options = {name: value for name, value in options.items() if value is not None}
    after = None
    if before is None:
        trained, graph = rundir.load(run)
        what = request if isinstance(request, Request) else _drawn_or_read(request, graph, seed)
    else:
        if told is None:
            raise InputError(f"{run} holds no certificate, it did not come of a deletion")
        if request is None or (isinstance(request, str) and not Path(request).is_file()):
            raise InputError("to audit the deletion itself, its request file is needed beside the run from before it")
        what = request if isinstance(request, Request) else Request.from_file(request)
        trained, graph = rundir.load(before)
        private, left = rundir.load(run)
        if graph.without(what).digest != left.digest:
            raise Mismatch(f"the graph of {run} is not that of {before} without what the request names")
        after = Release(private, load_released(run)[0], told)
    found = audit(
        trained,
        graph,
        what,
        after=after,
        seed=seed,
        folder=None if out is None else Path(out) / PIECES,
        **options,
    )
    if out is not None:
        _write(Path(out), found)
        if not keep:
            shutil.rmtree(Path(out) / PIECES)
    return found


def _drawn_or_read(request: str | Path | None, graph: Any, seed: int) -> Request:
    if request is not None and Path(request).is_file():
        return Request.from_file(request)
    return drawn(graph, Drawing.parse(str(request or REHEARSED)), seed=seed)


def _last_certificate(run: str | Path) -> Certificate | None:
    with rundir.settled(run) as place:
        return Certificate.read(place / rundir.CERTIFICATE) if (place / rundir.CERTIFICATE).exists() else None


def _write(folder: Path, found: Audit) -> None:
    content = found.to_dict()
    audit_figure(content["rows"]).savefig(folder / PICTURE, dpi=200, bbox_inches="tight")
    staging = folder / f"{RESULT}.part"
    staging.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(staging, folder / RESULT)
