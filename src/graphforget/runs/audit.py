"""The audit of a run directory: of the deletion that led to it, or a rehearsal of the next one."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphforget.audits.audit import Audit, Release, audit
from graphforget.certificates.document import Certificate
from graphforget.errors import InputError, Mismatch, Refused
from graphforget.files import write_atomic
from graphforget.graph.graph import Graph
from graphforget.models.constructions import OwnModel
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
from graphforget.training.trained import RetrainFunction
from graphforget.unlearning.registry import find


# Longer than 50 lines because of its documentation.
def audit_run(
    run: str | Path,
    *,
    before: str | Path | None = None,
    request: str | Path | Request | None = None,
    out: str | Path | None = None,
    keep: bool = False,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
    seed: int = 0,
    **options: Any,
) -> Audit:
    """Audits a run directory.

    With `before` and `request`, the deletion that led from `before` to `run` is audited. Without `before`, a deletion
    is rehearsed: `request` is drawn from the data of the run and unlearned by the method of the last certificate, with
    its epsilon, delta and sigma. Further options of the method have to be given again. The run directories stay
    unchanged.

    Args:
        run: The run directory.
        before: The run directory from before the deletion.
        request: The request of the deletion, or a file that holds it. For a rehearsal also a drawing, such as
            `node:5%`.
        out: A folder for the result, a plot and, until the audit is done, its checkpoints.
        keep: Whether to leave the checkpoints in `out`. They depend on what was deleted.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.
        retrain: The training function of an adopted model.
        seed: The seed of the drawing and of the audit.
        **options: Those of `audit`.

    Returns:
        The audit.

    Raises:
        InputError: The run holds no certificate, or `request` or `out` cannot be used.
        Mismatch: The graph of `run` is not that of `before` without what the request names.
    """
    if out is not None:
        _check_place(Path(out))
    certificate = _last_certificate(run)
    options = _options(certificate, options)
    after = None
    own: Any = {"model": model, "loss": loss}
    if before is None:
        trained, graph = load_run(run, retrain=retrain, **own)
        audited = request if isinstance(request, Request) else _drawn_or_read(request, graph, seed)
    else:
        if certificate is None:
            raise InputError(f"{run} holds no certificate: it has not answered any request")
        audited = _request_of_deletion(request, certificate, options)
        trained, graph = load_run(before, retrain=retrain, **own)
        private, retained = load_run(run, **own)
        if graph.without(audited).digest != retained.digest:
            raise Mismatch(f"the graph of {run} is not that of {before} without what the request names")
        after = Release(private, load_released(run, **own)[0], certificate)
    pieces = None if out is None else Path(out) / AUDIT_PIECES
    resumed = pieces is not None and pieces.exists()
    try:
        result = audit(trained, graph, audited, after=after, seed=seed, folder=pieces, **options)
    except (InputError, Refused, Mismatch):
        if pieces is not None and not resumed:  # going on would not help
            shutil.rmtree(pieces, ignore_errors=True)
        raise
    settings = result.settings | _about(certificate, rehearsed=before is None)
    result = dataclasses.replace(result, settings=settings)
    if out is not None:
        _write(Path(out), result)
        if not keep:
            shutil.rmtree(Path(out) / AUDIT_PIECES)
    return result


def _options(certificate: Certificate | None, options: dict[str, Any]) -> dict[str, Any]:
    """The caller's options; what they leave out is that of the last certificate."""
    given = {name: value for name, value in options.items() if value is not None}
    if certificate is None:
        return given
    defaults = {"method": certificate.method, "delta": certificate.delta, "epsilon": certificate.epsilon}
    if find(certificate.method).takes_sigma:  # then a caller may have set it
        defaults["sigma"] = certificate.sigma
    return {name: value for name, value in defaults.items() if value} | given


def _request_of_deletion(
    request: str | Path | Request | None, certificate: Certificate, options: dict[str, Any]
) -> Request:
    """The request of a deletion that is audited after the fact, by the method that made it."""
    if request is None or (isinstance(request, str) and not Path(request).is_file()):
        raise InputError("--before needs --request: the request file of that deletion (Python: before= and request=)")
    if options["method"] != certificate.method:
        raise InputError(
            f"the deletion was made by {certificate.method!r}, it cannot be audited as {options['method']!r}"
        )
    return request if isinstance(request, Request) else Request.from_file(request)


def _about(certificate: Certificate | None, *, rehearsed: bool) -> dict[str, Any]:
    """What was audited: a deletion with its certificate, or a rehearsal."""
    made = datetime.now(UTC).isoformat(timespec="seconds")
    of = {"rehearsal": rehearsed, "certificate": None if rehearsed or certificate is None else certificate.id}
    return of | {"made": made, "versions": versions()}


def _check_place(out: Path) -> None:
    if (out / AUDIT_RESULT).exists():
        raise InputError(f"{out} holds the result of an audit already, remove it or choose another folder")
    if inside_run(out / AUDIT_RESULT):
        raise InputError(f"{out} is in the run directory of a model, which an audit leaves as it is")


def _drawn_or_read(request: str | Path | None, graph: Graph, seed: int) -> Request:
    if request is not None and Path(request).is_file():
        return Request.from_file(request)
    return draw_request(graph, Drawing.parse(str(request or REHEARSAL)), seed=seed)


def _last_certificate(run: str | Path) -> Certificate | None:
    with open_run(run) as place:
        return Certificate.read(place / CERTIFICATE) if (place / CERTIFICATE).exists() else None


def _write(folder: Path, result: Audit) -> None:
    from graphforget.audits.figure import audit_figure  # imports matplotlib, which takes long

    content, picture = result.to_dict(), io.BytesIO()
    audit_figure(content["rows"]).savefig(picture, format="png", dpi=200, bbox_inches="tight")
    # Of a single person's deletion every number is about that person.
    write_atomic(folder / AUDIT_PICTURE, picture.getvalue(), mode=0o600)
    write_atomic(folder / AUDIT_RESULT, (json.dumps(content, indent=2) + "\n").encode(), mode=0o600)
