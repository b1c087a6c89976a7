"""Run Python on the stand-in: `python tests/standin/run.py -m pytest tests/unit/test_gpu.py`.

The library is built once for each torch, into `build/`. Where it cannot be (no compiler, or a torch
that has CUDA of its own), Python runs without it, and the tests that need it skip with the reason.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARY = "ELSA_TUNE_STANDIN"
WHY_NOT = "ELSA_TUNE_NO_STANDIN"


class CannotBuildError(Exception):
    """Why there is no stand-in here, for whoever reads that tests were skipped."""


def library() -> Path:
    """Return the path of the library, built if need be."""
    version = importlib.metadata.version("torch")
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    torch = Path(spec.origin).parent
    if (torch / "lib/libtorch_cuda.so").exists():
        raise CannotBuildError(f"torch {version} has CUDA of its own")
    source = HERE / "standin.cpp"
    key = hashlib.sha256(version.encode() + source.read_bytes()).hexdigest()[:16]
    path = ROOT / "build" / f"standin-{key}.so"
    if path.exists():
        return path
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise CannotBuildError("it takes a C++ compiler (g++ or clang++), and none is here")
    path.parent.mkdir(exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}.so")
    command = [compiler, "-shared", "-fPIC", "-std=c++20", f"-I{torch / 'include'}", str(source)]
    command += ["-o", str(aside), f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"{compiler} does not build the stand-in: {built.stderr.strip()[:2000]}")
    aside.replace(path)
    return path


def environment() -> dict[str, str]:
    """In which a Python process is on the stand-in, or tells its tests why it is not."""
    found = dict(os.environ)
    try:
        found[LIBRARY] = str(library())
    except CannotBuildError as error:
        found[WHY_NOT] = str(error)
        return found
    before = [found["PYTHONPATH"]] if found.get("PYTHONPATH") else []
    found["PYTHONPATH"] = os.pathsep.join([str(HERE / "site"), *before])
    return found


def main() -> None:
    """Become that process."""
    told = environment()
    if WHY_NOT in told:
        print(f"without a stand-in for a GPU: {told[WHY_NOT]}", file=sys.stderr)
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], told)


if __name__ == "__main__":
    main()
