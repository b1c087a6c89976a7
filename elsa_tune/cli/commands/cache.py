"""The command `cache`: what is kept of frozen layers' output on this machine, and its removal."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from elsa_tune.cli.printing import Format, FormatOption, local_time, show
from elsa_tune.search.saying import say

app = typer.Typer(no_args_is_help=True, help="List or prune the frozen layers' output kept here.")


@app.command("ls")
def list_entries(format: FormatOption = Format.TABLE) -> None:
    """List what is kept, the most recently used first."""
    from elsa_tune.training.forward.prefix_store import PrefixStore

    store = PrefixStore()
    entries = sorted(store.entries(), key=lambda one: one.last_used, reverse=True)
    rows = [dataclasses.asdict(one) | {"last_used": local_time(one.last_used)} for one in entries]
    show(rows, format, ("bytes", "last_used", "in_use", "what"))
    if format is Format.TABLE:
        total = sum(entry.bytes for entry in entries)
        say(
            f"{total / 1e9:.2f} of {store.budget / 1e9:g} GB in {store.folder}; "
            "ELSA_TUNE_PREFIX_CACHE_GB sets the limit"
        )


@app.command()
def prune(
    keep_gb: Annotated[
        float, typer.Option(min=0, help="Keep the most recently used, up to this many GB.")
    ] = 0.0,
) -> None:
    """Remove what no running trial reads."""
    from elsa_tune.training.forward.prefix_store import PrefixStore

    store = PrefixStore()
    store.sweep()
    entries = sorted(store.entries(), key=lambda one: one.last_used, reverse=True)
    kept = removed = 0
    for entry in entries:
        if kept + entry.bytes <= keep_gb * 1e9 or not store.evict(entry.key):
            kept += entry.bytes
        else:
            removed += entry.bytes
    say(f"removed {removed / 1e9:.2f} GB, kept {kept / 1e9:.2f} GB")
