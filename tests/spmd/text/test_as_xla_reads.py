"""Forms that XLA's reader takes and nobody prints: what they mean, and (with the `jax` extra) that XLA says the same."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from spmd.errors import HloParseError
from spmd.hlo import Opcode
from spmd.text.parser import parse_module
from spmd.text.printer import print_instruction, print_module
from spmd.verifier import verify

COMPUTATIONS = """
inc {
  n = f32[4,6]{0,1} parameter(0)
  ROOT m = f32[4,6]{0,1:T(4)} negate(n)
}

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
"""
ENTRY = """
ENTRY e {{
  a = f32[4,6]{{0,1}} parameter(0)
  b = f32[4,6] parameter(1)
  d = f32[<=4,6]{{0,1:S(1)}} parameter(2)
  i = s32[] parameter(3)
  k = token[] parameter(4)
  {0}
}}
"""


@dataclass(frozen=True)
class Case:
    """``lines`` end the body of an entry; ``root`` is how its root is printed."""

    title: str
    lines: str
    root: str

    @property
    def text(self) -> str:
        return f"HloModule m\n{COMPUTATIONS}{ENTRY.format(self.lines)}"


CASES = (
    # names
    Case("no blank behind a name", "ROOT %r=f32[4,6] negate(b)", "r = f32[4,6] negate(b)"),
    Case("a colon behind a name", "ROOT r: = f32[4,6] negate(b:)", "r = f32[4,6] negate(b)"),
    Case("a keyword as a name", "ROOT %true = f32[4,6] negate(b)", "%true = f32[4,6] negate(b)"),
    Case(
        "an operand named by a keyword",
        "%ROOT = f32[4,6] negate(b)\n  ROOT r = f32[4,6] negate(%ROOT)",
        "r = f32[4,6] negate(%ROOT)",
    ),
    # operands
    Case("commas without operands", "ROOT r = f32[4,6] add(,a,,b,)", "r = f32[4,6] add(a, b)"),
    Case("a shape alone", "ROOT r = f32[4,6] add(a, f32[4,6], b)", "r = f32[4,6] add(a, b)"),
    Case("a bound left out", "ROOT r = f32[4,6] negate(f32[4,6] d)", "r = f32[4,6] negate(d)"),
    Case("a bound added", "ROOT r = f32[4,6] negate(f32[4,<=6] b)", "r = f32[4,6] negate(b)"),
    # attributes
    Case(
        "attributes on the next line",
        "ROOT r = f32[4,6] exponential(b), \n    result_accuracy={mode=HIGHEST}",
        "r = f32[4,6] exponential(b), result_accuracy={mode=highest}",
    ),
    Case(
        "a string over two lines",
        'ROOT r = f32[4,6] negate(b), backend_config="1\n2"',
        'r = f32[4,6] negate(b), backend_config="1\\n2"',
    ),
    Case(
        "escapes of bytes and code points",
        'ROOT r = f32[4,6] negate(b), backend_config="\\1234\\x4a\\u00e9\\?"',
        'r = f32[4,6] negate(b), backend_config="S4J\\303\\251?"',
    ),
    Case(
        "aliases of an async-start",
        "s = ((f32[4,6]), f32[4,6], s32[]) abs-start(b), output_to_operand_aliasing={{1}: (0, {})}\n"
        "  ROOT r = f32[4,6] abs-done(s)",
        "r = f32[4,6] abs-done(s)",
    ),
    Case(
        "words in upper case",
        "ROOT r = f32[4] rng(i, i), distribution=RNG_UNIFORM",
        "r = f32[4] rng(i, i), distribution=rng_uniform",
    ),
    Case(
        "precisions in upper case",
        "ROOT r = f32[6,6] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}, operand_precision={HIGH,default}",
        "r = f32[6,6] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}, operand_precision={high,default}",
    ),
    Case(
        "a device before its kind",
        "ROOT r = f32[4,6] negate(b), sharding={device=1 maximal}",
        "r = f32[4,6] negate(b), sharding={maximal device=1}",
    ),
    # shapes that are left out
    Case("as the operand", "ROOT r = negate(d)", "r = f32[<=4,6]{0,1:S(1)} negate(d)"),
    Case(
        "an element size that is another type's",
        "p = pred[4,6]{0,1:S(1)} parameter(5)\n  h = s4[4,6]{1,0:E(4)} parameter(6)\n  ROOT r = select(p, h, h)",
        "r = s4[4,6]{0,1:E(4)S(1)} select(p, h, h)",
    ),
    Case(
        "no element size",
        "h = s4[4,6]{0,1:E(4)} parameter(5)\n  ROOT r = compare(h, h), direction=LT",
        "r = pred[4,6]{0,1} compare(h, h), direction=LT",
    ),
    Case("as the limited operand", "ROOT r = clamp(b, a, b)", "r = f32[4,6]{0,1} clamp(b, a, b)"),
    Case(
        "a permuted layout",
        "ROOT r = transpose(d), dimensions={1,0}",
        "r = f32[6,<=4]{1,0:S(1)} transpose(d), dimensions={1,0}",
    ),
    Case(
        "a permuted default layout",
        "ROOT r = transpose(b), dimensions={1,0}",
        "r = f32[6,4]{0,1} transpose(b), dimensions={1,0}",
    ),
    Case(
        "parts of a tuple",
        "ROOT r = tuple(a, d)",
        "r = (f32[4,6]{0,1}, f32[<=4,6]{0,1:S(1)}) tuple(a, d)",
    ),
    Case(
        "what is called",
        "ROOT r = call(a), to_apply=inc",
        "r = f32[4,6]{0,1:T(4)} call(a), to_apply=inc",
    ),
    Case(
        "a bound that is set",
        "ROOT r = set-dimension-size(a, i), dimensions={1}",
        "r = f32[4,<=6]{0,1} set-dimension-size(a, i), dimensions={1}",
    ),
    Case(
        "bounds that a reduction keeps",
        "c = f32[] constant(0)\n  ROOT r = reduce(d, c), dimensions={1}, to_apply=sum",
        "r = f32[<=4] reduce(d, c), dimensions={1}, to_apply=sum",
    ),
    Case(
        "bounds of any part",
        "ROOT r = concatenate(a, d), dimensions={1}",
        "r = f32[<=4,12] concatenate(a, d), dimensions={1}",
    ),
    Case(
        "a broadcast to itself",
        "ROOT r = broadcast(i), dimensions={}",
        "r = s32[] broadcast(i), dimensions={}",
    ),
    # shapes that are passed over
    Case(
        "the result of a receive",
        "s = (f32[2], u32[], token[]) recv(k), channel_id=1\n  ROOT r = token[] recv-done(s), channel_id=1",
        "r = (f32[2], token[]) recv-done(s), channel_id=1",
    ),
    Case(
        "the layout of what is sent",
        "ROOT r = (f32[4,6]{1,0}, u32[], token[]) send(a, k), channel_id=1",
        "r = (f32[4,6]{0,1}, u32[], token[]) send(a, k), channel_id=1",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_meaning(case: Case) -> None:
    module = parse_module(case.text)
    assert print_instruction(module.entry.root) == case.root
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_xla_says_the_same(case: Case) -> None:
    reader = pytest.importorskip("jaxlib._hlo", reason="XLA's reader comes with the jax extra")
    ours = print_module(parse_module(case.text), as_dump=True)
    theirs = [reader.hlo_module_from_text(text).to_string() for text in (case.text, ours)]
    assert theirs[0] == theirs[1]


@pytest.mark.parametrize(
    "text",
    [
        "f32[3] negate(f32[3])",
        "(f32[3]) tuple(f32[3] x)",
        "f32[3] map(f32[3] x), dimensions={0}, to_apply={ p = f32[] parameter(0) ROOT n = f32[] negate(p) }",
    ],
)
def test_one_instruction_without_a_name(text: str) -> None:
    module = parse_module(text)
    assert module.entry is module.computations[-1]
    assert module.entry.root.opcode is not Opcode.PARAMETER
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed


def test_aliases_of_an_async_start_are_printed() -> None:
    text = next(case.text for case in CASES if case.title == "aliases of an async-start")
    assert "abs-start(b), output_to_operand_aliasing={{1}: (0, {})}" in print_module(
        parse_module(text)
    )


def test_a_sugared_start_may_hold_its_computations() -> None:
    """They stand before the one that is made for it."""
    line = "s = ((f32[4,6]), f32[4,6], s32[]) fusion-start(b), kind=kLoop, calls={ p = f32[4,6] parameter(0) }"
    module = parse_module(
        f"HloModule m\nENTRY e {{\nb = f32[4,6] parameter(0)\n{line}\nd = f32[4,6] fusion-done(s)\n}}"
    )
    verify(module)


def test_pinning_makes_a_buffer_of_an_array_in_place() -> None:
    lines = (
        'p = b(f32[4,6]) custom-call(b), custom_call_target="Pin", output_to_operand_aliasing={{}: (0, {})}\n'
        'u = f32[4,6] custom-call(p), custom_call_target="Unpin", output_to_operand_aliasing={{}: (0, {})}'
    )
    verify(parse_module(f"HloModule m\n{COMPUTATIONS}{ENTRY.format(lines)}"))


def test_the_sharding_of_an_outfeed_is_about_what_goes_out() -> None:
    line = "o = token[] outfeed(b, k), outfeed_shape=f32[4,6], sharding={{devices=[2,1]0,1}, {maximal device=0}}"
    verify(parse_module(f"HloModule m, num_partitions=2\n{COMPUTATIONS}{ENTRY.format(line)}"))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            (
                "s = ((f32[4,6]{0,1}), f32[4,6], s32[]) async-start(a), calls=inc\n"
                "t = ((f32[4,6]{0,1}), f32[4,6], s32[]) async-start(a), calls=inc"
            ),
            "computation 'inc' is started by two async-starts",
        ),
        (
            (
                "s = ((f32[4,6]{0,1}), f32[4,6], s32[]) async-start(a), calls=inc\n"
                "r = f32[4,6] async-done(s), calls=sum"
            ),
            "async-done names the computation 'sum', s started 'inc'",
        ),
        (
            (
                "s = ((f32[4,6]), f32[4,6], s32[]) abs-start(b)\n"
                'r = f32[4,6] abs-done(s), async_execution_thread="host"'
            ),
            "async-done names the thread 'host', s runs on 'main'",
        ),
    ],
)
def test_refused(lines: str, message: str) -> None:
    with pytest.raises(HloParseError) as caught:
        parse_module(f"HloModule m\n{COMPUTATIONS}{ENTRY.format(lines)}")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("direction=LT, order=TOTAL", "direction=LT, type=TOTALORDER"),
        ("direction=LT, type=TOTALORDER, order=TOTAL", "direction=LT, type=TOTALORDER"),
        ("direction=GE, type=FLOAT, order=PARTIAL", "direction=GE, type=FLOAT"),
    ],
)
def test_the_order_of_compared_floats(written: str, read: str) -> None:
    """XLA has written it since the end of 2026; jaxlib 0.10 does not read it."""
    module = parse_module(ENTRY.format(f"ROOT r = pred[4,6] compare(b, b), {written}"))
    assert print_instruction(module.entry.root) == f"r = pred[4,6] compare(b, b), {read}"


def test_an_unknown_order_of_compared_floats() -> None:
    with pytest.raises(HloParseError, match="order is one of TOTAL, PARTIAL"):
        parse_module(ENTRY.format("ROOT r = pred[4,6] compare(b, b), direction=LT, order=NONE"))
