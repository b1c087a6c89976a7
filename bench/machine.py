"""What every committed measurement says of where it was taken: machine, versions, date."""

from __future__ import annotations

import json
import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("elsa-tune", "torch", "transformers", "ray", "optuna", "mlflow")
RESULTS = Path(__file__).resolve().parent / "results"


def describe() -> dict[str, Any]:
    """CPU, cores, memory in GiB, GPU if any, Python, versions, and today's date."""
    import torch

    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "date": time.strftime("%Y-%m-%d"),
    }


def write(name: str, results: Any, note: str) -> Path:
    """Write `bench/results/NAME.json` with the machine beside the results."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {"note": note, "machine": describe(), "results": results}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
