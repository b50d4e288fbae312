"""Custom calls of unknown cost are named before anything is compiled, of a text before it is parsed."""

from __future__ import annotations

import time

import pytest

from collectives.cost.custom_calls import has_rule
from collectives.cost.estimator import CostError
from collectives.cost.unpriced_calls import require_costs, require_costs_in_text
from spmd.text.parser import parse_module

KNOWN = ("Sharding", "TopK", "MoveToHost", "te_fused_attn_forward_ffi", "lapack_spotrf_ffi")
REWRITTEN = ("__cublas$gemm", "PadToStatic", "SliceToDynamic")
WHERE = 'metadata={op_name="jit(f)/mine" source_file="model.py" source_line=31}'
ONE = (
    "custom call 'mine': its cost is unknown (1 call, at jit(f)/mine at model.py:31); "
    "state it by --cost mine=F.json"
)


def text(*calls: str) -> str:
    lines = [f"  c{n} = f32[4,4] custom-call(p), {call}" for n, call in enumerate(calls)]
    return "\n".join(
        ["HloModule m", "ENTRY e {", "  p = f32[4,4] parameter(0)", *lines, "  ROOT r = f32[4,4] negate(p)", "}"]
    )  # fmt: skip


def target(name: str, more: str = "") -> str:
    return f'custom_call_target="{name}"{more and ", "}{more}'


def refused(module: str, *given: str) -> str:
    """Return the message, which is the same for the text and for the module."""
    with pytest.raises(CostError) as of_module:
        require_costs(parse_module(module), given)
    with pytest.raises(CostError) as of_text:
        require_costs_in_text(module.encode(), given)
    assert str(of_module.value) == str(of_text.value)
    return str(of_text.value)


def accepted(module: str, *given: str) -> None:
    require_costs(parse_module(module), given)
    require_costs_in_text(module.encode(), given)


def test_one_call_says_where_it_is() -> None:
    assert refused(text(target("mine", WHERE))) == ONE
    accepted(text(target("mine", WHERE)), "mine")


def test_every_unknown_target_has_a_line() -> None:
    module = text(
        target("mine", WHERE), target("TopK"), target("other"), target("mine"), target("a$b")
    )
    assert refused(module) == (
        "custom call 'mine': its cost is unknown (2 calls, the first at jit(f)/mine at model.py:31); "
        "state it by --cost mine=F.json\n"
        "custom call 'other': its cost is unknown (1 call); state it by --cost other=F.json\n"
        "custom call 'a$b': its cost is unknown (1 call); state it by --cost 'a$b=F.json'"
    )
    assert refused(module, "mine", "other").startswith("custom call 'a$b'")


@pytest.mark.parametrize("name", [*KNOWN, *REWRITTEN])
def test_what_has_a_rule_or_is_replaced_is_accepted(name: str) -> None:
    assert has_rule(name) == (name in KNOWN)
    accepted(text(target(name)))


def test_calls_of_called_computations_count() -> None:
    module = """HloModule m
inner { q = f32[4] parameter(0) ROOT c = f32[4] custom-call(q), custom_call_target="mine" }
ENTRY e { p = f32[4] parameter(0) ROOT r = f32[4] call(p), to_apply=inner }"""
    assert refused(module).startswith("custom call 'mine': its cost is unknown (1 call);")


@pytest.mark.parametrize(
    "line",
    [
        "  // c = f32[4] custom-call(p), " + target("mine"),
        '  q = f32[4,4] negate(p), metadata={op_name="custom-call(p), custom_call_target=\\"mine\\""}',
    ],
)
def test_what_only_looks_like_a_call_is_none(line: str) -> None:
    accepted(text().replace("  ROOT", f"{line}\n  ROOT"))


def test_attributes_may_stand_before_the_target() -> None:
    assert refused(text("custom_call_has_side_effect=true,\n " + target("mine", WHERE))) == ONE


def test_names_are_escaped_as_in_the_text() -> None:
    """The parser reads escapes; the scan leaves such a target to it."""
    module = text(target(r"mi\"ne"))
    require_costs_in_text(module.encode(), ())
    with pytest.raises(CostError, match=r"'mi\"ne'"):
        require_costs(parse_module(module), ())


@pytest.mark.parametrize(
    "data", [b"", b"\x0a\x00custom-call(", b"custom-call(" * 1000, b"\xff" * 9]
)
def test_other_data_is_left_to_the_reader(data: bytes) -> None:
    require_costs_in_text(data, ())


def test_a_large_text_is_scanned_in_a_fraction_of_a_second() -> None:
    line = (
        "  x.{} = f32[128,256]{{1,0}} add(f32[128,256]{{1,0}} %a.{}, f32[128,256]{{1,0}} %b.{})\n"
    )
    lines = "".join(line.format(n, n, n) for n in range(10_000)).encode()
    data = lines * (50_000_000 // len(lines)) + text(target("mine", WHERE)).encode()
    start = time.process_time()
    with pytest.raises(CostError, match="mine"):
        require_costs_in_text(data, ())
    assert time.process_time() - start < 0.7
