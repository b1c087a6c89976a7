"""Reports: draw what analysis computed, as figures, a page and tables."""
