"""An arrow's words: near what they point at, and on no point of the figure."""

from __future__ import annotations

from dataclasses import replace

from elsa_tune.report.words_place import Box, Drawn, place_words

SIZE = (100.0, 15.0)
EMPTY = Drawn(width=400, height=250, points=[(100, 200)])
TARGET = (100.0, 200.0)


def test_words_stand_below_and_to_the_right_where_nothing_is() -> None:
    assert place_words(TARGET, SIZE, EMPTY) == (166, 150)
    # Near the right border they end there, and near the bottom they stand above.
    assert place_words((380, 200), SIZE, EMPTY) == (350, 150)
    assert place_words((100, 20), SIZE, EMPTY) == (166, 70)


def test_they_hide_no_point() -> None:
    for point in [(150.0, 150.0), (218.0, 150.0), (150.0, 140.0)]:
        middle = place_words(TARGET, SIZE, replace(EMPTY, points=[TARGET, point]))
        assert middle != (166, 150)
        box = Box.around(middle, SIZE)
        assert not box.is_near(Box(*point, *point), 5)


def test_their_arrow_runs_through_no_other_point() -> None:
    half_way = (133.0, 175.0)
    middle = place_words(TARGET, SIZE, replace(EMPTY, points=[TARGET, half_way]))
    assert middle == (166, 120)  # farther below, so that the point lies above the arrow


def test_they_stay_clear_of_lines_and_bars_where_there_is_room() -> None:
    assert place_words(TARGET, SIZE, replace(EMPTY, levels=[150])) == (166, 165)
    bar = Box(180, 100, 180, 240)
    beside_it = place_words(TARGET, SIZE, replace(EMPTY, bars=[bar]))
    assert not Box.around(beside_it, SIZE).is_near(bar, 0)
    # A bar everywhere is hidden, rather than a point or a line.
    everywhere = Box(0, 0, 400, 250)
    crowded = replace(EMPTY, bars=[everywhere], levels=[150], points=[TARGET, (166, 135)])
    middle = place_words(TARGET, SIZE, crowded)
    assert not Box.around(middle, SIZE).is_near(Box(166, 135, 166, 135), 5)
    assert not Box.around(middle, SIZE).is_near(Box(0, 150, 400, 150), 2)


def test_without_any_room_they_stand_somewhere() -> None:
    small = Drawn(width=50, height=10, points=[(25, 5)])
    assert place_words((25, 5), SIZE, small) == (77, 55)
    points = [(float(x), float(y)) for x in range(0, 400, 5) for y in range(0, 250, 5)]
    assert place_words(TARGET, SIZE, replace(EMPTY, points=points)) == (166, 150)
