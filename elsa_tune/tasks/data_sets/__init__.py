"""Data sets as the package `datasets` reads them, of the hub at a commit or in a folder.

Nothing of a data set is ever run.

`datasets` is imported within functions: whoever trains on files needs none of it. It must never
choose what is read: where the hub does not answer, it takes whichever version it loaded last.
"""
