"""What the record calls its decisions, parameters and tags, in whatever store it is kept."""

from typing import Final

# The decisions that say what a search found: its answer's JSON objects, and the same in Markdown.
ANSWER: Final = "answer"
DESCRIPTION: Final = "description"
# The decision that says how the ways compare, as JSON objects, where others than depths were tried.
COMPARISON: Final = "comparison"
# The decision that says which of a hunt's ladder is tested, by their keys.
LADDER: Final = "ladder"
# The decision that says what a search waits for before a trial can run; None once one does.
WAITING: Final = "waiting"
WAITS_FOR_NODE: Final = "a node that can train"
# The decision that names the folder of figures and page, and the folder's name in a store.
REPORT: Final = "report"
# The search's parameter that has the command that starts such a search.
COMMAND: Final = "command"
# The search's tag that names the machine that its driver runs on.
MACHINE_TAG: Final = "machine"
# The part of a GPU that each of its trials holds.
GPUS_TAG: Final = "gpus_per_trial"
# The seconds that a session has; left out where it has no limit.
MAX_TIME_TAG: Final = "max_time"
# What is odd about its rows, as JSON.
FINDINGS_TAG: Final = "row_findings"
# The constants that it was planned by, as JSON.
POLICY_TAG: Final = "policy"
# The searches that asked the same before, as JSON; left out where there were none.
EARLIER_TAG: Final = "earlier_searches"
# The search's parameter that has its measuring seeds of a depth, at most.
SEEDS: Final = "seeds"
# What a store adds: the journal's place, so that a reader on the driver's machine can tell whether
# the driver lives.
JOURNAL_TAG: Final = "elsa_tune.journal"
HOST_TAG: Final = "elsa_tune.host"
