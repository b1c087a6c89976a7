"""`python -m elsa_tune` and the console script: loads the command line, and runs it."""

import sys


def run() -> None:
    """Run the command line; Ctrl-C ends it without a trace while its modules load, too."""
    try:
        from elsa_tune.cli.app import entry

        entry()
    except KeyboardInterrupt:
        print("elsa-tune: interrupted", file=sys.stderr)
        sys.exit(130)  # the status of InterruptedSearchError, which may not be loaded yet


if __name__ == "__main__":
    run()
