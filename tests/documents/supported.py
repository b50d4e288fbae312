"""Write docs/supported.md: what is supported, from the registries, and what is refused, from refusals that are run.

python -m tests.documents.supported        write the page anew
"""

from __future__ import annotations

from dataclasses import dataclass

import spmd.evaluator.families  # noqa: F401 - fills the registries
from spmd import custom_call
from spmd.evaluator.manual import MANUAL_TARGETS
from spmd.evaluator.registry import EVALUATORS, IN_STEPS, ON_DEVICE
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType
from tests.documents import op_coverage
from tests.paths import ROOT

DOCUMENT = ROOT / "docs" / "supported.md"


@dataclass(frozen=True)
class Refusal:
    """``stage`` says no to ``body`` (an entry's instructions) with ``words`` in the message; ``why`` is for the page."""

    what: str
    stage: str  # verify, evaluate
    why: str
    body: str
    words: str


REFUSALS = (
    Refusal(
        "sparse dot (`sparsity=`, a third operand)", "verify",
        "XLA has dropped them from the language",
        "x = f32[2,8] parameter(0) y = f32[16,3] parameter(1) m = u16[2,2] parameter(2)\n"
        "ROOT r = f32[2,3] dot(x, y, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sparsity=L.1@2:4",
        "dot takes 2 operands",
    ),
    Refusal(
        "sparse convolution (`sparsity_config=`, an operand that is a tuple)", "verify",
        "no public program uses them",
        "x = f32[1,4] parameter(0) k = (f32[1,1], s32[1,1]) parameter(1)\n"
        "ROOT r = f32[1,1] convolution(x, k), dim_labels=bf_io->bf,"
        " sparsity_config={rhs={sparsity=1x4 dimension=0 stride=1}}",
        "must be an array",
    ),
    Refusal(
        "`send` and `recv` with `is_host_transfer=true`", "evaluate",
        "the host's side of a transfer is not part of the module",
        "x = f32[2] parameter(0) t = token[] after-all()\n"
        "s = (f32[2], u32[], token[]) send(x, t), channel_id=3, is_host_transfer=true\n"
        "ROOT e = token[] send-done(s), channel_id=3, is_host_transfer=true",
        "host",
    ),
    Refusal(
        "an elided constant `{...}`", "evaluate",
        "it has no value; a proto of the module has it, or text with large constants printed",
        "ROOT c = f32[100] constant({...})",
        "elide",
    ),
    Refusal(
        "a custom call that nobody registered", "evaluate",
        "`register_custom_call(target, evaluate=...)` gives it a value",
        'x = f32[2] parameter(0) ROOT r = f32[2] custom-call(x), custom_call_target="mystery"',
        "mystery",
    ),
    Refusal(
        "`reshape` of a bounded array below its bound, where no one dimension of the result has its size", "evaluate",
        "nothing says which it is: a mark (`<=`), `inferred_dimension`, or `dynamic-reshape`, which says its sizes",
        "x = f32[4] parameter(0) n = s32[] constant(2)\n"
        "d = f32[<=4] set-dimension-size(x, n), dimensions={0} ROOT r = f32[2,2] reshape(d)",
        "does not follow",
    ),
    Refusal(
        "`stochastic-convert` to other than signed integers", "evaluate",
        "XLA computes no other either",
        "x = f32[2] parameter(0) u = u32[2] parameter(1) ROOT r = bf16[2] stochastic-convert(x, u)",
        "signed integers",
    ),
    Refusal(
        "`collective-permute` of tuples in place", "evaluate",
        "one buffer at a time is",
        "x = f32[4] parameter(0) i = s32[] constant(0) a = (s32[]) tuple(i) b = ((s32[]), (s32[])) tuple(a, a)\n"
        "t = (f32[4], f32[4]) tuple(x, x)\n"
        "ROOT r = (f32[4], f32[4]) collective-permute(t, t, b, b), source_target_pairs={{0,0}}, slice_sizes={{1},{1}}",
        "tuples",
    ),
    Refusal(
        "`te_fused_attn_*_ffi` with bias, dropout, a window, or layouts other than BSHD", "evaluate",
        "the public programs use none of them",
        "q = f32[1,2,1,2] parameter(0) e = f32[0] parameter(1) u = u32[2] parameter(2) n = s32[2] parameter(3)\n"
        "ROOT r = (f32[1,2,1,2], f32[1,1,2,1], u32[2,4], u8[1]) custom-call(q, q, q, e, u, n, n),"
        ' custom_call_target="te_fused_attn_forward_ffi", backend_config={bias_type = 1 : i64}',
        "fused attention with bias_type",
    ),
    Refusal(
        "element types an opcode does not take (`tanh` of integers, `and` of floats, ...)", "verify",
        "as in XLA's operation semantics; the table is tests/spmd/op_matrix/allowed.py",
        "x = s32[2] parameter(0) ROOT r = s32[2] tanh(x)",
        "tanh takes",
    ),
)  # fmt: skip


def evaluation(opcode: Opcode) -> str:
    if opcode in EVALUATORS:
        return "yes"
    if opcode in ON_DEVICE:
        return "yes (device state)"
    if opcode in IN_STEPS:
        return "yes (lock step)"
    return op_coverage.HOLES["evaluator"][opcode]


def meaning(column: str, opcode: Opcode) -> str:
    return "yes" if op_coverage.COLUMNS[column](opcode) else op_coverage.HOLES[column][opcode]


def _is_built_in(known: custom_call.CustomCall) -> bool:
    """Tests register targets of their own, whose functions are theirs."""
    return known.evaluate is not None and known.evaluate.__module__.startswith("spmd.")


def targets() -> list[str]:
    own = (t for t, known in custom_call._CUSTOM_CALLS.items() if _is_built_in(known))
    return sorted({*own, *MANUAL_TARGETS})


def document() -> str:
    kinds = ", ".join(f"`{kind}`" for kind in PrimitiveType)
    lines = [
        "# Supported / refused",
        "",
        "Built by `python -m tests.documents.supported`; a test holds it up to date and runs every refusal below.",
        "How each opcode gets its meanings stands in [op_coverage.md](internals/op_coverage.md).",
        "",
        "## Element types",
        "",
        f"Read and printed: {kinds}, and `token`, `opaque`.",
        "All are evaluated, at every edge value, by tests/spmd/op_matrix. Types narrower than f32 compute in f32 and",
        "are rounded once per operation; f8e8m0fnu has neither zero nor sign, results it lacks are NaN.",
        "",
        "## Custom calls with a value",
        "",
        ", ".join(f"`{target}`" for target in targets()),
        "",
        "## Refused",
        "",
        "| what | when | why |",
        "|---|---|---|",
        *(f"| {r.what} | {r.stage} | {r.why} |" for r in REFUSALS),
        "",
        "## Opcodes",
        "",
        "Every opcode of the list is read, verified and printed, as text and as proto.",
        "",
        "| opcode | evaluated | partitioned | run |",
        "|---|---|---|---|",
    ]
    for opcode in Opcode:
        partitioned, run = meaning("partitioner", opcode), meaning("runtime", opcode)
        lines.append(f"| {opcode} | {evaluation(opcode)} | {partitioned} | {run} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
