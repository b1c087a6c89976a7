"""`python -m elsa_tune`: the same as the console script."""

from elsa_tune.cli.app import entry

if __name__ == "__main__":
    entry()
