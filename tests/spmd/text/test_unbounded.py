"""Unbounded dimensions and buffers: read, verified and printed; refused by name where a value or a partition is needed."""

from __future__ import annotations

import pytest

from launch.pipeline import compile_module
from spmd.analysis.static_shapes import require_values
from spmd.errors import UnsupportedError, VerificationError
from spmd.evaluator.evaluator import evaluate
from spmd.hlo.module import HloModule
from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from spmd.text.sharding.sharding_text import parse_sharding
from spmd.verifier import verify

HEAD = "HloModule m\n\nsum {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}\n\nENTRY e {\n"


def entry(body: str) -> HloModule:
    return parse_module(HEAD + body + "}\n")


UNBOUNDED = entry("""  b = f32[?,3]{1,0} parameter(0)
  z = f32[] constant(0)
  c = f32[?,3]{1,0} negate(b)
  t = f32[3,?]{1,0} transpose(c), dimensions={1,0}
  d = f32[?,?]{1,0} dot(b, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  w = f32[?,5]{1,0} pad(b, z), padding=0_0x1_1
  v = f32[?,3]{1,0} concatenate(b, c), dimensions={0}
  r = f32[] reduce(d, z), dimensions={0,1}, to_apply=sum
  ROOT all = (f32[?,5]{1,0}, f32[?,3]{1,0}, f32[]) tuple(w, v, r)
""")
BUFFER = entry("""  a = f32[4]{0} parameter(0)
  b = b(f32[4]{0}) custom-call(a), custom_call_target="Pin"
  ROOT c = f32[4]{0} custom-call(b), custom_call_target="Unpin"
""")


@pytest.mark.parametrize("module", [UNBOUNDED, BUFFER], ids=["unbounded", "buffer"])
def test_read_verified_printed(module: HloModule) -> None:
    verify(module)
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed


def test_inferred_shapes_are_checked() -> None:
    with pytest.raises(VerificationError, match=r"expected shape f32\[\?,3\], found f32\[2,3\]"):
        verify(entry("  b = f32[?,3] parameter(0)\n  ROOT n = f32[2,3] negate(b)\n"))
    with pytest.raises(VerificationError, match=r"expected an array|must be an array"):
        verify(entry("  b = b(f32[3]) parameter(0)\n  ROOT n = b(f32[3]) negate(b)\n"))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "  b = f32[?,3] parameter(0)\n  ROOT r = f32[6] reshape(b)\n",
            "has an unbounded dimension",
        ),
        ("  b = f32[?] parameter(0)\n  ROOT r = f32[1] slice(b), slice={[0:1]}\n", "slice of f32"),
    ],
)
def test_what_needs_a_size_is_refused_by_name(body: str, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        verify(entry(body))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            UNBOUNDED,
            r"unbounded dimension of f32\[\?,3\].* is not supported in a computation: b = ",
        ),
        (BUFFER, r"buffer type b\(f32\[4\]\{0\}\).* is not supported in a computation: b = "),
    ],
    ids=["unbounded", "buffer"],
)
def test_nothing_computes_with_them(module: HloModule, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        require_values(module)
    with pytest.raises(UnsupportedError, match=words):
        evaluate(module)
    with pytest.raises(UnsupportedError, match=words):
        compile_module(module, 1)


def test_an_unbounded_dimension_cannot_be_partitioned() -> None:
    sharding = parse_sharding("{devices=[2,1]<=[2]}")
    with pytest.raises(UnsupportedError, match="cannot be partitioned"):
        sharding.shard_shape(UNBOUNDED.entry.parameters[0].shape)
