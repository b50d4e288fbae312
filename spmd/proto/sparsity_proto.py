"""SparsityConfig of convolutions, which the attributes keep as text: ``{lhs={sparsity=2x4 dimension=1 stride=1}}``."""

from __future__ import annotations

import re

from spmd.proto.schema.xla_data import SparsityConfigProto, TensorSparsityConfigProto
from spmd.text.lexer import Scanner

_BLOCKS = re.compile(r"(\d{1,19})x(\d{1,19})")


def sparsity_text(proto: SparsityConfigProto) -> str:
    """Return the text of the sparsity; "" if neither side is sparse."""
    sides = (("lhs", proto.lhs), ("rhs", proto.rhs))
    texts = [f"{name}={_side_text(side)}" for name, side in sides if side is not None]
    return f"{{{' '.join(texts)}}}" if texts else ""


def _side_text(proto: TensorSparsityConfigProto) -> str:
    blocks = f"{proto.num_non_zero}x{proto.block_size}"
    return f"{{sparsity={blocks} dimension={proto.dimension} stride={proto.stride}}}"


def sparsity_of_text(text: str) -> SparsityConfigProto:
    proto = SparsityConfigProto()
    scanner = Scanner.of(text)
    for _ in scanner.items(needs_commas=False):
        if scanner.consume_if("lhs"):
            proto.lhs = _read_side(scanner)
        else:
            scanner.expect("rhs")
            proto.rhs = _read_side(scanner)
    scanner.finish()
    return proto


def _read_side(scanner: Scanner) -> TensorSparsityConfigProto:
    side = TensorSparsityConfigProto()
    scanner.expect("=")
    for _ in scanner.items(needs_commas=False):
        name = scanner.name("a sparsity field")
        scanner.expect("=")
        if name == "sparsity":
            blocks = scanner.need(_BLOCKS, "non-zeros x block size")
            side.num_non_zero, side.block_size = int(blocks[1]), int(blocks[2])
        elif name == "dimension":
            side.dimension = scanner.integer()
        elif name == "stride":
            side.stride = scanner.integer()
        else:
            scanner.fail(f"unknown sparsity field {name!r}")
    return side
