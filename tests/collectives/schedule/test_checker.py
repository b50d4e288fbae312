"""The schedule checker accepts legal schedules and names what is wrong with others."""

from __future__ import annotations

import pytest

from collectives.schedule.checker import (
    Event,
    Group,
    Phase,
    check_events,
    check_schedule,
    check_topological,
    events_of_devices,
)
from spmd.errors import CheckFailed, SpmdError
from spmd.text.parser import parse_module


def start(name: str, *group: int) -> Event:
    return Event(Phase.START, name, group)


def done(name: str, *group: int) -> Event:
    return Event(Phase.DONE, name, group)


def meet(name: str, *group: int) -> tuple[Event, Event]:
    return start(name, *group), done(name, *group)


def test_overlapping_groups_in_one_order() -> None:
    check_events(
        [
            [*meet("a", 0, 1), *meet("c", 0, 2)],
            [*meet("a", 0, 1), *meet("b", 1, 2)],
            [*meet("b", 1, 2), *meet("c", 0, 2)],
        ]
    )


def test_overlapping_groups_in_a_circle() -> None:
    """Each group's order is consistent; together nobody can begin."""
    with pytest.raises(CheckFailed, match=r"in a cycle.*device 0 in a for \[1\]"):
        check_events(
            [
                [*meet("a", 0, 1), *meet("c", 0, 2)],
                [*meet("b", 1, 2), *meet("a", 0, 1)],
                [*meet("c", 0, 2), *meet("b", 1, 2)],
            ]
        )


def test_starts_ahead_of_waits_break_the_circle() -> None:
    def both(one: str, first: Group, two: str, second: Group) -> list[Event]:
        return [start(one, *first), start(two, *second), done(one, *first), done(two, *second)]

    check_events(
        [
            both("a", (0, 1), "c", (0, 2)),
            both("b", (1, 2), "a", (0, 1)),
            both("c", (0, 2), "b", (1, 2)),
        ]
    )


def test_order_within_a_group() -> None:
    with pytest.raises(CheckFailed, match="collective 0 is a on device 0 and b on device 1"):
        check_events(
            [
                [*meet("a", 0, 1), *meet("b", 0, 1)],
                [*meet("b", 0, 1), *meet("a", 0, 1)],
            ]
        )


def test_a_member_that_never_comes() -> None:
    with pytest.raises(CheckFailed, match="collective 0 is a on device 0 and nothing on device 1"):
        check_events([[*meet("a", 0, 1)], []])


def test_a_device_in_two_groups() -> None:
    with pytest.raises(CheckFailed, match=r"device 0 is in groups \(0, 1\) and \(0, 2\)"):
        check_events(
            [
                [*meet("a", 0, 1), *meet("a", 0, 2)],
                [*meet("a", 0, 1)],
                [*meet("a", 0, 2)],
            ]
        )


def test_a_done_that_stands_before_its_start() -> None:
    with pytest.raises(CheckFailed, match="in a cycle"):
        check_events([[done("a", 0), start("a", 0)]])


MODULE = """HloModule m, num_partitions=4
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[4] parameter(0)
  s = f32[4] all-reduce-start(x), channel_id=1, replica_groups={GROUPS}, use_global_device_ids=true, to_apply=sum
  y = f32[4] collective-permute(x), channel_id=2, source_target_pairs={{0,1},{2,3}}
  d = f32[4] all-reduce-done(s)
  ROOT out = f32[4] add(d, y)
}
"""


def module(groups: str = "{0,1},{2,3}") -> str:
    return MODULE.replace("GROUPS", groups)


def test_module() -> None:
    check_schedule(parse_module(module()))


def test_events_follow_the_schedule() -> None:
    events = events_of_devices(parse_module(module()), 4)
    assert [(e.phase, e.collective) for e in events[3]] == [
        (Phase.START, "s"),
        (Phase.START, "y"),
        (Phase.DONE, "y"),
        (Phase.DONE, "s"),
    ]
    assert [e.group for e in events[3]] == [(2, 3), (2, 3), (2, 3), (2, 3)]


def test_members_share_their_events() -> None:
    """Collectives of the same groups share these: a check looks at each group once, not once for each member."""
    events = events_of_devices(parse_module(module()), 4)
    assert all(mine is other for mine, other in zip(events[2], events[3], strict=True))
    started, waited = events[3][0], events[3][3]
    assert started.group is waited.group


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("{0,1},{1,2}", r"device 1 is in groups \(0, 1\) and \(1, 2\)"),
        ("{0,1},{2,4}", r"flattened_id ids must lie in 0\.\.3, found 4"),
        ("{0,1},{2,2}", "names a device twice"),
    ],
)
def test_groups_that_cannot_be(groups: str, message: str) -> None:
    with pytest.raises(SpmdError, match=message):
        check_schedule(parse_module(module(groups)))


def test_a_user_before_its_operand() -> None:
    parsed = parse_module(module())
    order = list(parsed.entry.instructions)
    order[-1], order[-2] = order[-2], order[-1]
    parsed.entry.set_order(order)
    with pytest.raises(CheckFailed, match="out is scheduled before d, which it needs"):
        check_topological(parsed.entry)


def test_control_predecessors_count() -> None:
    parsed = parse_module(module())
    by_name = {i.name: i for i in parsed.entry.instructions}
    by_name["d"].add_control_dependency_to(by_name["y"])
    with pytest.raises(CheckFailed, match="y is scheduled before d"):
        check_schedule(parsed)


def test_a_start_that_nobody_waits_for() -> None:
    text = module().replace("d = f32[4] all-reduce-done(s)\n", "").replace("add(d, y)", "add(x, y)")
    with pytest.raises(CheckFailed, match="s has 0 all-reduce-done, expected one"):
        check_schedule(parse_module(text))


def test_branches_in_branches_are_walked_once() -> None:
    """Thirty deep: whether a branch holds a collective is not asked again at each level."""
    depth = 30
    branches = "".join(
        f"""
other{n} {{
  ROOT o{n} = f32[4] parameter(0)
}}
b{n} {{
  x{n} = f32[4] parameter(0)
  k{n} = pred[] constant(true)
  ROOT c{n} = f32[4] conditional(k{n}, x{n}, x{n}), true_computation=b{n - 1}, false_computation=other{n}
}}
"""
        for n in range(1, depth + 1)
    )
    module = parse_module(
        f"""HloModule m, is_scheduled=true, num_partitions=2
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
b0 {{
  x0 = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x0), replica_groups={{{{0,1}}}}, channel_id=1, use_global_device_ids=true, to_apply=add
}}
{branches}
ENTRY e {{
  x = f32[4] parameter(0)
  ROOT y = f32[4] call(x), to_apply=b{depth}
}}
"""
    )
    assert [len(own) for own in events_of_devices(module, 2)] == [2, 2]


def test_permutes_of_thousands_of_pairs() -> None:
    """Each pair by itself: groups are not looked through for every pair."""
    count = 8192
    pairs = ",".join(f"{{{n},{n ^ 1}}}" for n in range(count))
    module = parse_module(
        f"""HloModule m, is_scheduled=true, num_partitions={count}
ENTRY e {{
  x = f32[4] parameter(0)
  ROOT p = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{{pairs}}}
}}
"""
    )
    events = events_of_devices(module, count)
    assert [one.group for one in events[7]] == [(6, 7), (6, 7)]
