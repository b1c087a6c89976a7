"""The place of an arrow's words in a figure: near what they point at, and on top of no point.

Lengths are in points, counted from the lower left corner of the axes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# How far above or below their target the words' middle stands, the best first.
_DISTANCES = (50.0, 35.0, 65.0, 80.0, 95.0, 110.0)
# Below the target there is room for the words if it stands this high.
_ROOM_BELOW = 90.0
# Left of this part of the axes the words stand to the right of their target.
_LEFT_PART = 0.6
# How far beside the target the words begin, in parts of the axes' width.
_BESIDE = 0.04
# How far a point's middle, a line or a bar must stay from the words, and a point from the arrow.
_FROM_POINT = 6.0
_FROM_LEVEL = 3.0
_FROM_BAR = 3.0
_FROM_ARROW = 7.0

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with level sides."""

    left: float  # the ends along x, left <= right
    bottom: float  # the ends along y, bottom <= top
    right: float
    top: float

    @classmethod
    def around(cls, middle: Place, size: Place) -> "Box":
        """Return the box of this width and height around a place."""
        x, y = middle
        width, height = size
        return cls(x - width / 2, y - height / 2, x + width / 2, y + height / 2)

    def is_within(self, other: "Box") -> bool:
        is_beside = other.left <= self.left and self.right <= other.right
        return is_beside and other.bottom <= self.bottom and self.top <= other.top

    def is_near(self, other: "Box", room: float) -> bool:
        """Whether the two are nearer than this, along both sides."""
        is_beside = self.left - room < other.right and other.left < self.right + room
        return is_beside and self.bottom - room < other.top and other.bottom < self.top + room


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What stands in a pair of axes."""

    width: float  # of the axes
    height: float  # of the axes
    points: Sequence[Place]  # the middles of the marks
    levels: Sequence[float] = ()  # heights of lines across the axes
    bars: Sequence[Box] = ()  # intervals


def place_words(target: Place, size: Place, drawn: Drawn) -> Place:
    """Return the middle of the words of this width and height that point at the target.

    Where there is room they hide no point, then their arrow runs through none, then they stay clear
    of lines across the axes, and then of bars.
    """
    places = list(_places(target, size, drawn))

    def box(place: Place) -> Box:
        return Box.around(place, size)

    def hides_no_point(place: Place) -> bool:
        return not any(_is_at(box(place), point) for point in drawn.points)

    def crosses_no_point(place: Place) -> bool:
        # What stands straight above or below the target cannot be gone around.
        aside = [point for point in drawn.points if abs(point[0] - target[0]) > 1]
        return all(_distance(point, place, target) > _FROM_ARROW for point in aside)

    def hides_no_level(place: Place) -> bool:
        across = (Box(0, level, drawn.width, level) for level in drawn.levels)
        return not any(box(place).is_near(level, _FROM_LEVEL) for level in across)

    def hides_no_bar(place: Place) -> bool:
        return not any(box(place).is_near(bar, _FROM_BAR) for bar in drawn.bars)

    wishes: list[Callable[[Place], bool]] = [
        hides_no_point,
        crosses_no_point,
        hides_no_level,
        hides_no_bar,
    ]
    while wishes:
        for place in places:
            if all(is_met(place) for is_met in wishes):
                return place
        wishes.pop()
    return places[0]


def _places(target: Place, size: Place, drawn: Drawn) -> Iterator[Place]:
    """Yield places for the words' middle, the best first: within the axes, or the best of all.

    A curve that rises leaves room below and to the right.
    """
    x, y = target
    width, _ = size
    beside = _BESIDE * drawn.width
    to_the_right = x + beside + width / 2
    to_the_left = x - beside - width / 2
    middles = [to_the_right, x, to_the_left]
    if x >= _LEFT_PART * drawn.width:
        at_the_border = drawn.width - width / 2
        middles = [at_the_border, x, to_the_left]
    directions = (-1, 1) if y > _ROOM_BELOW else (1, -1)
    axes = Box(0, 0, drawn.width, drawn.height)
    has_room = False
    for direction in directions:
        for middle in middles:
            for distance in _DISTANCES:
                place = (middle, y + direction * distance)
                if Box.around(place, size).is_within(axes):
                    has_room = True
                    yield place
    if not has_room:
        yield middles[0], y + directions[0] * _DISTANCES[0]


def _is_at(box: Box, point: Place) -> bool:
    """Whether the mark of a point reaches into the box."""
    x, y = point
    return box.is_near(Box(x, y, x, y), _FROM_POINT)


def _distance(point: Place, begin: Place, end: Place) -> float:
    """Return how far a point is from the straight line between two others."""
    x, y = point
    x_begin, y_begin = begin
    x_end, y_end = end
    along_x = x_end - x_begin
    along_y = y_end - y_begin
    squared_length = along_x**2 + along_y**2
    share = 0.0
    if squared_length:
        share = ((x - x_begin) * along_x + (y - y_begin) * along_y) / squared_length
    share = min(1.0, max(0.0, share))
    x_nearest = x_begin + share * along_x
    y_nearest = y_begin + share * along_y
    return float(((x - x_nearest) ** 2 + (y - y_nearest) ** 2) ** 0.5)
