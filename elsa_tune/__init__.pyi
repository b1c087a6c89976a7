"""The surface for editors and type checkers: `__init__.py` finds each name when it is used."""

from elsa_tune.api import Answers as Answers
from elsa_tune.api import Curves as Curves
from elsa_tune.api import Search as Search
from elsa_tune.api import answer as answer
from elsa_tune.api import curve as curve
from elsa_tune.api import export as export
from elsa_tune.api import load_search as load_search
from elsa_tune.api import predict as predict
from elsa_tune.api import resume as resume
from elsa_tune.api import search as search
from elsa_tune.exporting.bundle import bundle as bundle
from elsa_tune.training.bundled import load_bundle as load_bundle
from elsa_tune.training.freezing import freeze as freeze

__version__: str
