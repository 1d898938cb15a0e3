"""The command `graphforget ledger`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from graphforget.certificates.releases import compose_since_training
from graphforget.cli.options import AsJson, Run
from graphforget.cli.render import ledger_result, render_ledger, render_measured
from graphforget.errors import InputError, Mismatch
from graphforget.runs.history import history_of
from graphforget.runs.layout import CERTIFICATE, open_run
from graphforget.runs.run_file import read_run_file


def ledger(
    run: Run,
    delta: Annotated[float | None, typer.Option(help="The delta of the epsilon for all releases together.")] = None,
    head: Annotated[
        bool, typer.Option("--head", help="Print the ledger's head alone: keep it elsewhere for 'verify --head'.")
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Include the private measurements. Do not publish it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the answered requests of a run, the guarantee of all releases together, and the number of releases left."""
    with open_run(run) as place:
        state, history = read_run_file(place), history_of(place)
        has_certificate = (place / CERTIFICATE).exists()
    if not history.entries:
        if history.earlier is not None:
            raise InputError(f"the ledger of {run} is of an earlier version; 'unlearn' continues it")
        if state.history or has_certificate:
            raise Mismatch(f"the ledger of {run} is missing")
        raise InputError(f"{run} has no ledger: it has not answered any request")
    checked = history.ledger
    if head:
        print(json.dumps({"audience": "public", "head": history.head}) if as_json else history.head)
        return
    at = state.recipe.delta if delta is None else delta
    together = compose_since_training(checked.releases, checked.certificates, delta=at)
    result = ledger_result(history.entries, together, state.counted_releases)
    measured = [
        {"number": entry.number, "method": annex.account.get("method"), "changed": annex.account.get("changed")}
        | {name: annex.account.get("measured", {}).get(name) for name in ("distance", "epsilon_measured")}
        for group, annex in zip(history.groups, history.own_annexes, strict=True)
        for entry in group
    ]
    if as_json:
        print(json.dumps(result | ({"audience": "private", "measured": measured} if private else {})))
        return
    render_ledger(result)
    if private:
        render_measured(measured)
