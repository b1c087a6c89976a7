"""Placeholder while it is being written."""


def models() -> None:
    raise SystemExit(1)
