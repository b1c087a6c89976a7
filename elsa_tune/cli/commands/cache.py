"""The command `cache`: what is kept of frozen layers' output on this machine, and its removal."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="What is kept of frozen layers' output here.")


@app.command("ls")
def list_entries(
    output: Annotated[str, typer.Option("--format", help="`table` or `json`.")] = "table",
) -> None:
    """List what is kept, the most recently used first."""
    from elsa_tune.errors import UsageError
    from elsa_tune.training.forward.prefix_store import PrefixStore

    if output not in ("table", "json"):
        raise UsageError(f"--format {output}: it must be table or json")
    store = PrefixStore()
    entries = sorted(store.entries(), key=lambda one: one.last_used, reverse=True)
    if output == "json":
        rows = [
            {
                "key": entry.key,
                "what": entry.what,
                "bytes": entry.bytes,
                "last_used": _when(entry.last_used),
                "in_use": entry.in_use,
            }
            for entry in entries
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    for entry in entries:
        use = "in use" if entry.in_use else _when(entry.last_used)[:16].replace("T", " ")
        typer.echo(f"{entry.bytes / 1e6:9.1f} MB  {use:16}  {entry.what}")
    total = sum(entry.bytes for entry in entries)
    print(
        f"{total / 1e9:.2f} of {store.budget / 1e9:g} GB in {store.folder}; "
        "ELSA_TUNE_PREFIX_CACHE_GB sets the limit",
        file=sys.stderr,
    )


@app.command()
def prune(
    keep_gb: Annotated[
        float, typer.Option(min=0, help="Keep the most recently used, up to so many GB.")
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
    print(f"removed {removed / 1e9:.2f} GB, kept {kept / 1e9:.2f} GB", file=sys.stderr)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat("T", "seconds")
