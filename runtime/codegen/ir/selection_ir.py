"""LLVM IR of the comparison by which a window of select-and-scatter selects an element."""

from __future__ import annotations

from runtime.codegen.ir.combine import element_of
from runtime.program.records.reduce import SelectedElements


def keeps_ir(elements: SelectedElements) -> str:
    """Return the function @keeps(best, value), which returns whether ``best``, the selected element, stays selected."""
    wide, condition = element_of(elements.kind.numpy).wide, elements.direction.lower()
    sign = "s" if elements.kind.is_signed_integer else "u"
    compare = f"fcmp o{condition}" if elements.kind.is_floating else f"icmp {sign}{condition}"
    return f"""
define internal i1 @keeps({wide} %best, {wide} %value) alwaysinline {{
  %keeps = {compare} {wide} %best, %value
  ret i1 %keeps
}}"""
