"""The specification of a search: made of a request, kept on disk, compared, changed."""

from elsa_tune.searching.specification.changing import (
    asked_settings,
    more_of,
    until_certain,
    where_asked,
    with_seeds,
)
from elsa_tune.searching.specification.comparing import check_same, differing_settings
from elsa_tune.searching.specification.keeping import (
    load_specification,
    replace_specification,
    save_specification,
    taken,
)
from elsa_tune.searching.specification.making import specify

__all__ = [
    "asked_settings",
    "check_same",
    "differing_settings",
    "load_specification",
    "more_of",
    "replace_specification",
    "save_specification",
    "specify",
    "taken",
    "until_certain",
    "where_asked",
    "with_seeds",
]
