"""Random schedules: work, blocking and split collectives, permutes and loops, among 8 devices."""

from __future__ import annotations

import random

from tests.collectives.simulate.scheduled import Line, begin, end, loop, permute, ring, work

DEVICES = 8
GROUPS = (
    "",
    "{0,1,2,3},{4,5,6,7}",
    "{0,4},{1,5},{2,6},{3,7}",
    "{0,1},{2,3},{4,5},{6,7}",
    "{0},{1,2,3},{4,5,6,7}",
)
PAIRS = (
    ",".join(f"{{{i},{(i + 1) % 8}}}" for i in range(8)),
    "{0,1},{1,2},{2,3},{4,5},{5,6},{6,7}",
    "{0,4},{4,0}",
    "{1,1},{2,5}",
)


def some_lines(dice: random.Random, depth: int, made: list[int]) -> list[Line]:
    """Work, blocking and split collectives, permutes, loops; halves may overlap in any order."""
    lines: list[Line] = []
    under_way: list[str] = []
    for _ in range(dice.randrange(2, 7)):
        made[0] += 1
        name, seconds = f"x{made[0]}", dice.choice((0.5, 1.0, 2.0, 3.25))
        exchange = dice.choice(("near", "far"))
        match dice.randrange(6 if depth < 2 else 5):
            case 0 | 1:
                lines.append(work(name, seconds))
            case 2:
                lines.append(ring(name, seconds, dice.choice(GROUPS), exchange))
            case 3:
                use = dice.choice((1.0, 0.75, 0.5))
                lines.append(begin(name, seconds, dice.choice(GROUPS), exchange, use))
                under_way.append(name)
            case 4:
                lines.append(permute(name, seconds, dice.choice(PAIRS)))
            case 5:
                inside = some_lines(dice, depth + 1, made)
                lines.append(loop(name, dice.choice((1, 2, 3, 7, 40)), *inside))
        while under_way and dice.random() < 0.4:
            lines.append(end(under_way.pop(dice.randrange(len(under_way)))))
    return [*lines, *map(end, under_way)]
