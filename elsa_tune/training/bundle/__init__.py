"""Exported models that answer together: read and written, run, and compared with each alone."""
