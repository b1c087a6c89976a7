"""What users pay for a way to adapt a model: the units in which ways are compared."""

import enum
from collections.abc import Mapping

from elsa_tune.specs.adapt.candidate import Candidate


class Cost(enum.StrEnum):
    """The unit of a cost."""

    TIME = "time"  # seconds of one training run
    MEMORY = "memory"  # its peak memory in MiB
    PARAMETERS = "parameters"  # how many parameters it trains
    LATENCY = "latency"  # seconds of the exported model for one input, alone
    BUNDLE = "bundle"  # the same per task, beside seven others on one shared prefix


# The seconds that exported models take for one input, by unit and way.
Latencies = Mapping[Cost, Mapping[Candidate, float]]
