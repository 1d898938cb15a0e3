"""The command `graphforget audit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import graphforget as gf
from graphforget.cli.console import print_error, progress, say
from graphforget.cli.options import AsJson, Device, Option, Run, named_options
from graphforget.cli.own_code import LossPath, ModuleOption, ModulePath, RetrainPath, own_code
from graphforget.cli.render_audit import render_audit
from graphforget.runs.layout import AUDIT_PIECES, AUDIT_RESULT, REHEARSAL

if TYPE_CHECKING:
    from graphforget.audits.audit import Audit

FLAGGED, INCONCLUSIVE = 1, 3


@contextmanager
def _interrupted(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if (folder / AUDIT_PIECES).exists():
            print_error(
                f"{folder / AUDIT_PIECES} contains finished parts that depend on deleted data: continue, or remove it"
            )
        raise


# Longer than 50 lines because every option is documented in the signature.
def audit(
    run: Run,
    before: Annotated[
        Path | None, typer.Option(help="The run before the deletion: the deletion itself is audited.")
    ] = None,
    request: Annotated[
        str | None,
        typer.Option(help=f"With --before the request file; else the request to rehearse, by default {REHEARSAL}."),
    ] = None,
    out_folder: Annotated[
        Path | None, typer.Option("--out", help="The folder for result, plot and checkpoints; by default RUN.audit.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="By default that of RUN's certificate, or auto.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The epsilon to ask the method for.")] = None,
    delta: Annotated[float | None, typer.Option(help="The delta to ask the method for.")] = None,
    models: Annotated[
        int | None,
        typer.Option(min=8, max=10_000, help="Models of each population; default 64 if convex, else 32."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=2, max=1000, help="Retrained models to compare with; default 20 or 5."),
    ] = None,
    share: Annotated[float, typer.Option(help="Share of the training nodes in each model of a population.")] = 0.9,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random draws.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 2,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the checkpoints, which depend on deleted data.")] = False,
    option: Option = None,
    module: ModulePath = None,
    module_option: ModuleOption = None,
    loss: LossPath = None,
    retrain: RetrainPath = None,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Attack a model before and after a deletion, and compare with retrained ones.

    Exit code 0: passed. 1: the model remembers, or the claim is refuted. 3: inconclusive, a deletion that did nothing
    would have the same result; a sentence says how many models are needed. The output and the files depend on deleted
    data and are private.

    Without --before the deleted data is not available, so a deletion is rehearsed: the same method forgets a random
    part of the data in RUN. An interrupted audit continues when the same command is called again.
    """
    folder = _folder(run) if out_folder is None else out_folder
    options = named_options(option, reserved=(gf.audit, gf.audit_run))
    own = own_code(module, module_option, loss, retrain)
    with _interrupted(folder), progress(quiet=as_json) as report:
        result = gf.audit_run(
            run,
            before=before,
            request=request,
            out=folder,
            keep=keep,
            method=method,
            epsilon=epsilon,
            delta=delta,
            models=models,
            seeds=seeds,
            share=share,
            seed=seed,
            jobs=jobs,
            device=device,
            progress=report,
            **own,
            **options,
        )
    if as_json:
        print(json.dumps(result.to_dict() | {"folder": str(folder)}))
    else:
        _show(result, folder, keep=keep)
    if not result.passed:
        raise typer.Exit(FLAGGED if result.findings else INCONCLUSIVE)


def _folder(run: Path) -> Path:
    """The default folder of the results, beside the run."""
    named = run if run.name else run.resolve()  # it may be "."
    return named.with_name(f"{named.name}.audit")


def _show(result: Audit, folder: Path, *, keep: bool) -> None:
    render_audit(result)
    pieces = f" and the checkpoints in {AUDIT_PIECES}, to be removed with the deleted data" if keep else ""
    say(f"Written to {folder}: {AUDIT_RESULT}, a plot{pieces}.")
