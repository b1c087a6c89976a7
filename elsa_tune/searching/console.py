"""A console of rich's in which only our own styles and tables command the terminal."""

from collections.abc import Callable, Iterable
from typing import IO, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from elsa_tune.searching.output import PipeSafe, unfiltered
from elsa_tune.visible import visible


class SafeConsole(Console):
    """A console that writes out every character of a text that is not seen, whoever made the text.

    What rich is to fit (a `Text`, a table's cell) should be `visible` before it is measured.
    """

    def __init__(
        self, stream: IO[str], guard: Callable[[Any], PipeSafe] = PipeSafe, **how: Any
    ) -> None:
        """Write to a stream. guard: wraps it, and settles what becomes of an unwritten text."""
        # What rich writes for itself must come through as it is.
        guarded = guard(unfiltered(stream))
        super().__init__(file=cast(IO[str], guarded), **how)

    def render_str(self, text: str, **how: Any) -> Text:
        # rich would drop some of what is not seen, without a word.
        return super().render_str(visible(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_rich_s_own = segment.control is not None
            if not is_rich_s_own:
                segment = Segment(visible(segment.text), segment.style)
            yield segment
