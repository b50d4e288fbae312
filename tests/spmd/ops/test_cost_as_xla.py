"""Flops, transcendental functions and bytes of one instruction, against XLA's HloCostAnalysis where jaxlib is installed."""

from __future__ import annotations

import pytest

from spmd.analysis.cost import module_cost
from spmd.text.parser import parse_module
from tests.spmd.op_matrix import allowed
from tests.spmd.op_matrix.examples import EXAMPLES
from tests.spmd.op_matrix.run import program

jax = pytest.importorskip("jax", reason="XLA's cost analysis comes with the jax extra")

_TABLES = (
    "XLA counts the pointer table of a tuple as bytes that its maker writes and its reader reads"
)
_HALVES = "XLA counts the transfer at the start and again at the done, with the tuple between them"
_CALLS = "XLA's CPU backend counts nothing for calls that it does not know"
_SIZES = "XLA adds the four bytes in which a dynamic dimension's size is kept"
_INDICES = "XLA counts one start index, here each is read"
_TRIPS = "XLA counts a loop's body and condition once, here as often as they run"

#: Examples whose cost is another here, and why.
DEVIATIONS = {
    "parameters out of order": _TABLES,
    "origin": _TABLES,
    "opt-barrier": _TABLES,
    "partition-id and replica-id": _TABLES,
    "collective-permute into a buffer": _TABLES,
    "copy-start": _HALVES,
    "generic asynchronous form": _HALVES,
    "asynchronous sugar": _HALVES,
    "all-reduce in halves": _HALVES,
    "all-gather in halves": _HALVES,
    "collective-permute in halves": _HALVES,
    "send and recv": _HALVES,
    "send to the host": _HALVES,
    "custom call": _CALLS,
    "custom call to the host": _CALLS,
    "custom call nobody knows": _CALLS,
    "bounded dynamic": _SIZES,
    "set-dimension-size": _SIZES,
    "dynamic-reshape": _SIZES,
    "dynamic-slice": _INDICES,
    "dynamic-update-slice": _INDICES,
    "while": _TRIPS,
    "scan": _TRIPS,
    "ragged-dot": "XLA leaves out the rows: 2 flops per result column and depth; here each row meets one group",
    "reduce-scatter": "XLA counts no flops; here one combination per operand element, as in an all-reduce",
    "element size of 4 bits": "the CPU holds one 4-bit element per byte",
}
#: XLA's reader of whole modules does not take them.
_BARE = ("a bare instruction", "a bare instruction without names")


def by_xla(text: str) -> tuple[float, float, float]:
    from jaxlib import _hlo, _jax

    client = jax.local_devices(backend="cpu")[0].client
    found = _jax.hlo_module_cost_analysis(client, _hlo.hlo_module_from_text(text))
    keys = ("flops", "transcendentals", "bytes accessed")
    flops, transcendentals, accessed = (max(0.0, found.get(key, 0.0)) for key in keys)
    return flops, transcendentals, accessed


def ours(text: str) -> tuple[float, float, float]:
    work = module_cost(parse_module(text)).work
    return work.flops, work.transcendentals, work.bytes_accessed


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n not in _BARE and EXAMPLES[n].refused != "parse"])  # fmt: skip
def test_example(name: str) -> None:
    text = EXAMPLES[name].text
    text = text if text.startswith("HloModule") else f"HloModule m\n{text}"
    same = ours(text) == by_xla(text)
    assert same == (name not in DEVIATIONS), (ours(text), by_xla(text))


@pytest.mark.parametrize("opcode", [*allowed.UNARY, *allowed.BINARY])
def test_elementwise(opcode: str) -> None:
    binary = opcode in allowed.BINARY
    kinds = (allowed.BINARY if binary else allowed.UNARY)[opcode]
    kind = "f32" if "f32" in kinds else kinds[-1]
    result = allowed.result_type(opcode, kind)
    operands = "x, x" if binary else "x"
    text = program(f"x = {kind}[10] parameter(0)\nROOT r = {result}[10] {opcode}({operands})")
    assert ours(text) == by_xla(text)
