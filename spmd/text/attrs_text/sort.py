"""sort and topk."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import SortAttrs, TopKAttrs
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter, boolean


def _read_sort(values: AttrValues) -> SortAttrs:
    values.callee("to_apply")
    dims = values.need_ints("dimensions")
    if len(dims) != 1:
        values.fail(f"sort takes one dimension, found {len(dims)}")
    return SortAttrs(dims[0], values.flag("is_stable"))


def _write_sort(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(SortAttrs)
    out.ints("dimensions", (attrs.dimension,))
    out.flag("is_stable", attrs.is_stable)
    out.callee("to_apply", instruction.to_apply)


def _read_topk(values: AttrValues) -> TopKAttrs:
    """Read the attributes. ``is_stable``, which texts of 2026 have, is dropped: equal values always
    stay in order here.
    """
    values.flag("is_stable")
    largest = values.flag("largest") if "largest" in values else True
    return TopKAttrs(values.need_integer("k"), largest)


def _write_topk(out: AttrWriter, instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(TopKAttrs)
    out.add("k", attrs.k)
    out.add("largest", boolean(attrs.largest))


attrs_text(Opcode.SORT, read=_read_sort, write=_write_sort)
attrs_text(Opcode.TOPK, read=_read_topk, write=_write_topk)
