"""Run by every Python that a test starts: most import torch and Transformers, and looking through
those for garbage takes a fifth of the time.
"""

import gc

gc.set_threshold(100_000, 10, 100)
