"""Text of somebody else's making as it may be shown: with nothing in it that is not seen.

Names, labels and errors come from files and servers. A terminal obeys some of their characters:
it changes its title, moves up and writes over what it said, or turns the order of what stands
beside them.
"""

import re

# Control characters but tab and newline (C0, DEL, C1); marks that turn the order of writing; what
# has no width, but for the joiners that scripts and emoji need; half characters, as file names that
# are no UTF-8 have them.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
    "\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
    "\ud800-\udfff"
)
_ONE = re.compile(f"[{_UNSEEN}]")
# Colours, the cursor's way up, and the way back to a line's beginning.
_PROGRESS = re.compile(rf"(\x1b\[[\d;]*[mAK]|\r)|[{_UNSEEN}]")


def visible(text: str) -> str:
    """The text with each such character written out as JSON writes it, `\\u001b`; so what was JSON
    still is, and means the same.
    """
    return _ONE.sub(_written_out, text)


def visible_cell(text: str) -> str:
    """The same in one line, for a cell of a table: it must not begin a row of its own."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def progress_visible(text: str) -> str:
    """The same for what libraries write: what colours it or draws a progress bar stays."""
    return _PROGRESS.sub(lambda found: found[1] or _written_out(found), text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
