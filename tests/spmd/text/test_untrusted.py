"""Text from anywhere: bounded recursion, bounded memory, linear time, and only deliberate errors."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from spmd.errors import HloParseError, SpmdError
from spmd.ops.attrs import ConstantAttrs
from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from spmd.verifier import verify
from tests.fuzz.mutations import mutate_text
from tests.paths import CASES

DEPTH = 20_000


@pytest.mark.parametrize(
    "text",
    [
        "e { a = " + "(" * DEPTH + "f32[]" + ")" * DEPTH + " parameter(0) }",
        "e { a = f32[] parameter(0) b = f32[] " + "negate(" * DEPTH + "a" + ")" * DEPTH + " }",
        "e { a = f32[" + "1," * DEPTH + "1] constant(" + "{" * DEPTH + "1" + "}" * DEPTH + ") }",
        "e { a = f32[] parameter(0), frontend_attributes={k=" + "{" * DEPTH + "}" * DEPTH + "} }",
        "e { a = f32[] parameter(0), sharding=" + "{" * DEPTH + "}" * DEPTH + " }",
        "e { a = f32[] parameter(0) b = f32[] call(a), to_apply="
        + "{ a = f32[] parameter(0) b = f32[] call(a), to_apply=" * 200
        + "f"
        + "}" * 200
        + " }",
        "e { a = f32[] constant(" + "9" * DEPTH + "e) }",
        "e { a = s32[] constant(" + "9" * DEPTH + ") }",
        "e { a = s32[] parameter(" + "9" * DEPTH + ") }",
        "e { a = f32[" + "9" * DEPTH + "] parameter(0) }",
    ],
    ids=range(10),
)
def test_deep_or_long_text_is_refused(text: str) -> None:
    with pytest.raises(HloParseError):
        parse_module(text)


def test_a_huge_shape_costs_nothing_without_its_data() -> None:
    tracemalloc.start()
    with pytest.raises(HloParseError):
        parse_module("e { a = f32[4000000000,4000000000] constant({ {1, 2}, {3, 4} }) }")
    module = parse_module("e { a = f32[4000000000,4000000000] constant({...}) }")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert module.entry.root.shape.byte_size == 64 * 10**18
    assert peak < 4_000_000


# ru_maxrss is not asked: a child starts with its parent's, and a worker of the tests has much.
TOUCHED = """
import re
from pathlib import Path

from spmd.text.parser import parse_module
from spmd.verifier import verify


def most_resident():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])


verify(parse_module("e { a = f32[8,8] constant(2.5) }"))
before = most_resident()
verify(parse_module("e { a = f32[4096,4096] constant(2.5) }"))
print(most_resident() - before)
"""


def test_implied_zeros_touch_no_memory() -> None:
    # A process of its own is measured: a worker of the tests grows by other things meanwhile.
    command = [sys.executable, "-c", TOUCHED]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(result.stdout) < 20_000  # of 65536 KB
    module = parse_module("e { a = f32[4096,4096] constant(2.5) }")
    value = module.entry.root.attrs_as(ConstantAttrs).literal.value()
    assert (value.shape, value[0, 0], np.count_nonzero(value)) == ((4096, 4096), 2.5, 1)
    text = print_module(module)
    assert "constant(2.5)" in text
    assert parse_module(text).entry.root.attrs == module.entry.root.attrs


def test_implied_zeros_are_bounded() -> None:
    four = "".join(f"a{i} = f32[4096,4096] constant({i})\n" for i in range(4))
    parse_module(f"e {{ {four} }}")
    with pytest.raises(HloParseError, match="imply more than 67108864 zeros"):
        parse_module(f"e {{ {four} b = f32[2] constant(0) }}")


def test_huge_meshes_cost_nothing() -> None:
    with pytest.raises(HloParseError):
        parse_module("e { a = f32[8] parameter(0), sharding={mesh['x'=4000000000], [{'x'}]} }")
    parse_module("e { a = f32[8] parameter(0), sharding={devices=[4000000000]<=[4000000000]} }")


def chain(length: int, attributes: str = "") -> str:
    lines = [f"  x{i} = f32[4]{{0}} add(x{i - 1}, x{i - 1}){attributes}" for i in range(1, length)]
    return "\n".join(
        ["HloModule m", "", "ENTRY e {", "  x0 = f32[4]{0} parameter(0)", *lines, "}", ""]
    )


def signatures(length: int) -> str:
    """A head that looks like a signature again and again, and is none."""
    return "e (" + ") -> (" * length + "'{\n  a = f32[] parameter(0)\n}"


def waiting(length: int) -> str:
    """One instruction that waits for all others, and one that all others wait for."""
    lines = [f"x{i} = f32[] constant(0), control-predecessors={{x}}" for i in range(length)]
    names = ", ".join(f"x{i}" for i in range(length))
    last = f"y = f32[] constant(1), control-predecessors={{{names}}}"
    return "e {\n" + "\n".join(["x = f32[] constant(0)", *lines, last]) + "\n}\n"


def aliases(length: int) -> str:
    aliased = ", ".join(f"{{{i}}}: (0, {{}}, may-alias)" for i in range(length))
    return f"HloModule m, input_output_alias={{ {aliased} }}\ne {{ ROOT a = f32[] parameter(0) }}"


def tuple_shardings(length: int) -> str:
    each, leaves = "{devices=[2]<=[2]}, ", "f32[8], "
    return f"e {{ a = ({leaves * length}f32[8]) parameter(0), sharding={{{each * length}{{replicated}}}} }}"


TEXTS = {
    "waiting": waiting,
    "aliases": aliases,
    "tuple shardings": tuple_shardings,
    "lines": chain,
    "blanks": lambda length: chain(length).replace("\n", " "),
    "one_line_with_attributes": lambda length: (
        chain(length, ', metadata={op_name="x"}').replace("\n", " ") + "\n"
    ),
    "callees": lambda length: chain(length, ", to_apply=f"),
    "signatures": signatures,
    "comments": lambda length: "/*" * length + "*/ e { a = f32[] parameter(0) }" + "/* */" * length,
    "operands": lambda length: "e { a = f32[] parameter(0)\n b = tuple(" + "a, " * length + "a) }",
    "tuples": lambda length: "e { a = (" + "(f32[], f32[]), " * length + "f32[]) parameter(0) }",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_time_is_linear(text: Callable[[int], str]) -> None:
    """Sixteen times the text takes about sixteen times as long to read and to verify, accepted or refused."""

    def seconds(length: int, enough: float = 0.0) -> float:
        """The least of three times, or the first that is less than enough."""
        written = text(length)
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            with contextlib.suppress(SpmdError):
                verify(parse_module(written))
            best = min(best, time.process_time() - start)
            if best < enough:
                break
        return best

    most = 0.02 + 48 * seconds(1_000)
    assert seconds(16_000, most) < most


def test_broken_text_gives_a_parse_error_or_a_module() -> None:
    text = (CASES / "shmap_collectives_2x4" / "module.hlo").read_text()
    begin = text.index("\nENTRY")
    head, entry = text[:begin], text[begin:]
    rng = random.Random(7)
    refused = []
    for _ in range(150):
        broken = head + mutate_text(entry, rng).decode(errors="replace")
        try:
            module = parse_module(broken)
        except HloParseError as error:
            refused.append(error.location)
            continue
        printed = print_module(module)
        assert print_module(parse_module(printed)) == printed
    assert len(refused) > 50
    assert None not in refused


@pytest.mark.parametrize("value", ['{mesh = <["xz=2, "y"=2]>}', "{a = 'b}", '{a = "b"}'])
def test_a_lone_quote_in_braces_does_not_reach_beyond_them(value: str) -> None:
    module = parse_module(
        'HloModule m\n\nENTRY e { a = f32[] parameter(0), metadata={op_name="x"} }'
    )
    module.frontend_attributes = (("k", value),)
    assert parse_module(print_module(module)).frontend_attributes == (("k", value),)
