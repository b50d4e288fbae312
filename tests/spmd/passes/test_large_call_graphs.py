"""Calls, loops and branches that double a program with each level are refused, with the size that it would have."""

from __future__ import annotations

import pytest

from spmd.errors import UnsupportedError
from spmd.limits import MAX_UNSHARED
from spmd.passes.call_inliner import CallInliner
from spmd.passes.flatten_call_graph import FlattenCallGraph
from spmd.passes.interface import HloPass
from spmd.text.parser import parse_module
from spmd.verifier import verify

CALL = "{0} = f32[4] call({1}), to_apply=c{2}"
LOOP = "{0} = f32[4] while({1}), condition=never, body=c{2}"


def program(line: str, levels: int, uses: int) -> str:
    """`levels` functions, of which each runs the one below `uses` times, one after the other."""
    never = "never {\n p = f32[4] parameter(0)\n ROOT r = pred[] constant(false)\n}"
    functions = [never, "c0 {\n x0 = f32[4] parameter(0)\n ROOT r = f32[4] add(x0, x0)\n}"]
    for level in range(1, levels + 1):
        lines = [line.format(f"x{i + 1}", f"x{i}", level - 1) for i in range(uses)]
        lines[-1] = f"ROOT {lines[-1]}"
        body = "\n ".join(["x0 = f32[4] parameter(0)", *lines])
        functions.append(f"c{level} {{\n {body}\n}}")
    functions[-1] = f"ENTRY {functions[-1]}"
    return "HloModule m\n" + "\n".join(functions)


@pytest.mark.parametrize(("line", "pass_"), [(CALL, CallInliner()), (LOOP, FlattenCallGraph())])
def test_doubling_is_refused_with_the_size(line: str, pass_: HloPass) -> None:
    module = parse_module(program(line, 40, 2))
    before = sum(len(computation) for computation in module.computations_post_order())
    with pytest.raises(
        UnsupportedError, match=rf"m has {before} instructions, and [\d,]{{17,}} once"
    ):
        pass_.run(module)
    assert sum(len(computation) for computation in module.computations_post_order()) == before


@pytest.mark.parametrize(("line", "pass_"), [(CALL, CallInliner()), (LOOP, FlattenCallGraph())])
def test_deep_chains_are_taken(line: str, pass_: HloPass) -> None:
    module = parse_module(program(line, 60, 1))
    pass_.run(module)
    verify(module)
    module = parse_module(program(line, 5, 2))
    assert pass_.run(module)
    verify(module)


def test_calls_within_loops_count() -> None:
    body = program(CALL, 30, 2).replace("ENTRY c30", "c30")
    entry = "ENTRY e {\n a = f32[4] parameter(0)\n ROOT w = f32[4] while(a), condition=never, body=c30\n}"
    with pytest.raises(UnsupportedError, match=f"more than {MAX_UNSHARED:,}"):
        CallInliner().run(parse_module(f"{body}\n{entry}"))
