"""Options of printing a module."""

from __future__ import annotations

from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """The defaults give what JAX's ``as_text("hlo")`` gives, and lose nothing.

    ``large_constants``: constants of more elements than this are printed elided (``{...}``) and so lose their value;
    None prints every value. ``signatures`` adds ``(p: f32[2]) -> f32[2]`` to computation heads, ``percent`` a ``%``
    before names, ``operand_shapes`` each operand's shape, ``operand_index`` a comment at every fifth operand.
    """

    percent: bool = False
    signatures: bool = False
    operand_shapes: bool = False
    operand_index: bool = False
    metadata: bool = True
    backend_config: bool = True
    large_constants: int | None = None

    @staticmethod
    def like_xla_dump() -> PrintOptions:
        """Return the options with which ``--xla_dump_to`` writes modules."""
        return PrintOptions(percent=True, signatures=True, operand_index=True)

    @staticmethod
    def short() -> PrintOptions:
        """Return options for short texts: no metadata, large constants elided."""
        return PrintOptions(metadata=False, backend_config=False, large_constants=10)
