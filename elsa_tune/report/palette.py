"""Colours, markers and dashes of every figure, and what each renderer calls them.

It must not know what is drawn. The colours are Okabe and Ito's (2008, "Color Universal Design"),
which people with any common colour blindness tell apart; yellow is left out, as it vanishes on
paper. On a dark ground the two dark ones are lightened.
"""

from __future__ import annotations

from elsa_tune.report.charts import INK

LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DARK = ("#4FA8E0", "#F0793A", "#2BC49A", "#DE97BE", "#F0B43C", "#9AD3F5")
LIGHT_INK = "#3d4451"

# Ours -> (matplotlib's, plotly's).
MARKERS = {
    "circle": ("o", "circle"),
    "square": ("s", "square"),
    "triangle": ("^", "triangle-up"),
    "diamond": ("D", "diamond"),
    "down": ("v", "triangle-down"),
    "pentagon": ("p", "pentagon"),
    "star": ("*", "star"),
    "cross": ("X", "x"),
}
# The offsets are in line widths for matplotlib, in pixels for plotly.
DASHES = {
    "solid": ("solid", "solid"),
    "dashed": ((0, (5, 2)), "8px,4px"),
    "dotted": ((0, (1, 1.6)), "2px,3px"),
    "dashdot": ((0, (6, 2, 1.2, 2)), "9px,3px,2px,3px"),
}
# What tells models apart besides their colour.
MODEL_MARKERS = ("circle", "square", "triangle", "diamond", "down", "pentagon")
MODEL_DASHES = ("solid", "dashed", "dashdot", "dotted")

# Cividis: even in grey, and the same to colour-blind eyes.
HEAT_SCALE = "cividis"


def light_colour(slot: int) -> str:
    """The colour of a slot on paper."""
    return LIGHT_INK if slot == INK else LIGHT[slot % len(LIGHT)]
