"""Usual text classification data sets of the hub, by short names.

Where each lies and which of its columns are meant; what else it has is read from it.
"""

from dataclasses import dataclass

from elsa_tune.files import slug
from elsa_tune.specs.task import Metric
from elsa_tune.tasks.known import KNOWN_TASKS, RESERVED_NAMES

PREFIX = "hub:"


@dataclass(frozen=True, slots=True)
class HubTask:
    """A data set of the hub, and what of it is learnt."""

    repository: str  # `owner/name`
    config: str | None = None  # which of its configurations; None for the only one
    text: tuple[str, ...] = ("text",)  # one or two columns
    label: str = "label"  # a column
    metric: Metric = Metric.ACCURACY  # the headline one

    @property
    def reference(self) -> str:
        """What `task` takes: `hub:owner/name/config`."""
        if self.config is None:
            return f"{PREFIX}{self.repository}"
        return f"{PREFIX}{self.repository}/{self.config}"


_TWEETS = ("emoji", "emotion", "hate", "irony", "offensive", "sentiment")

HUB_TASKS: dict[str, HubTask] = {
    "20newsgroups": HubTask("SetFit/20_newsgroups", label="label_text"),
    "ag_news": HubTask("fancyzhx/ag_news"),
    "banking77": HubTask("mteb/banking77", label="label_text"),
    "dbpedia_14": HubTask("fancyzhx/dbpedia_14", text=("title", "content")),
    "emotion": HubTask("dair-ai/emotion", "split"),
    "imdb": HubTask("stanfordnlp/imdb"),
    "rotten_tomatoes": HubTask("cornell-movie-review-data/rotten_tomatoes"),
    "snli": HubTask("stanfordnlp/snli", text=("premise", "hypothesis")),
    "sst5": HubTask("SetFit/sst5", label="label_text"),
    "trec": HubTask("SetFit/TREC-QC", label="label_coarse_text"),
    **{
        f"tweet_eval/{config}": HubTask("cardiffnlp/tweet_eval", config, metric=Metric.F1_MACRO)
        for config in _TWEETS
    },
    "yelp_polarity": HubTask("fancyzhx/yelp_polarity"),
    "yelp_review_full": HubTask("Yelp/yelp_review_full"),
}


def is_built_in(name: str) -> bool:
    """Whether a task of one's own cannot have this name."""
    of_hub = {slug(task) for task in HUB_TASKS}  # as they are recorded
    return name in KNOWN_TASKS or name in of_hub or name in RESERVED_NAMES
