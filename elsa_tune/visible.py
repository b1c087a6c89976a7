"""Write out the characters of a text that are not seen, before a terminal gets it.

Names, labels and errors come from files and servers. A terminal obeys some of their characters:
it changes its title, moves up and writes over earlier lines, or turns the order of what stands
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
_UNSEEN_CHARACTER = re.compile(f"[{_UNSEEN}]")
# Colours, the cursor's way up, and the way back to a line's beginning.
_PROGRESS = re.compile(rf"(\x1b\[[\d;]*[mAK]|\r)|[{_UNSEEN}]")


def visible(text: str) -> str:
    """Write out each unseen character as JSON does, `\\u001b`.

    What was JSON before still is, and means the same.
    """
    return _UNSEEN_CHARACTER.sub(_written_out, text)


def visible_cell(text: str) -> str:
    """Write a text in one line, for a cell of a table: it must not begin a row of its own."""
    seen = visible(text)
    return seen.replace("\n", "\\n").replace("\t", "\\t")


def progress_visible(text: str) -> str:
    """Write out what libraries write, but leave what colours it or draws a progress bar."""
    return _PROGRESS.sub(lambda match: match[1] or _written_out(match), text)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    # JSON writes others as a surrogate pair (RFC 8259, section 7).
    high = 0xD7C0 + (code >> 10)
    low = 0xDC00 + (code & 0x3FF)
    return f"\\u{high:04x}\\u{low:04x}"
