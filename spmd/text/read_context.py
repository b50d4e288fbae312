"""State that the readers of one module share: the source, the module, and texts already parsed."""

from __future__ import annotations

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import NO_ANNOTATIONS, Annotations
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Attrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.sharding import HloSharding
from spmd.text.annotations_text import read_frontend_attributes, read_metadata, read_text_or_braces
from spmd.text.attrs_text import ATTRS_TEXT, AttrValues, Callee
from spmd.text.lexer import Source
from spmd.text.names import read_name
from spmd.text.opaque_text import OPAQUE
from spmd.text.recovery import MissingNameError, Recovery
from spmd.text.shape_text import ShapeReader
from spmd.text.sharding.sharding_text import read_sharding

#: Ops whose parentheses contain no operands.
OWN_PARENTHESES = frozenset({"parameter", "constant"})


@dataclass(frozen=True, slots=True)
class ParsedAttrs:
    """Everything that stands behind the operands, names not yet resolved."""

    attrs: Attrs
    callees: tuple[Callee, ...]
    sharding: HloSharding | None
    annotations: Annotations
    control_predecessors: tuple[tuple[str, int], ...]


class ReadContext:
    """Caches hold for one parse; equal texts give equal (shared) records."""

    def __init__(self, source: Source, module: HloModule) -> None:
        self.source = source
        self.module = module
        self.shapes = ShapeReader()
        self.recovery = Recovery()
        self.computations: dict[str, HloComputation] = {}
        #: Ids of the callees of async-starts, each of which may have one caller.
        self.async_computations: set[int] = set()
        self.parsed: dict[tuple[str | None, ...], ParsedAttrs] = {}
        #: (attribute, text) -> the value that was read.
        self.known: dict[tuple[str, str], object] = {}

    def missing(self, what: str, name: str, start: int) -> MissingNameError:
        """Return the error for a name at ``start`` that is not defined before."""
        error = self.source.error(f"no {what} {name!r} is defined before this one", start)
        found = MissingNameError(error.message, error.location, error.line, caret=error.caret)
        found.name = name
        return found

    def parse_attributes(self, opcode: Opcode, values: AttrValues) -> ParsedAttrs:
        """Return the attributes of the op's family and those of any instruction. Raises HloParseError for others."""
        text = ATTRS_TEXT.get(opcode)
        if text is None:
            values.fail(f"the attributes of {opcode} cannot be read")
        return self.parse_common(values, text.read(values))

    def parse_common(self, values: AttrValues, attrs: Attrs) -> ParsedAttrs:
        """Read the attributes of any instruction, besides ``attrs``. Raises HloParseError if others are left."""
        sharding = values.read_known("sharding", read_sharding, None)
        control = _control_predecessors(values)
        annotations = _annotations(values)
        values.refuse_rest()
        return ParsedAttrs(attrs, tuple(values.callees), sharding, annotations, control)


def _annotations(values: AttrValues) -> Annotations:
    metadata = values.read_known("metadata", read_metadata, NO_ANNOTATIONS.metadata)
    frontend: tuple[tuple[str, str], ...] = values.read_known(
        "frontend_attributes", read_frontend_attributes, ()
    )
    backend_config = values.read("backend_config", read_text_or_braces, "")
    extra = tuple(
        (name, values.read(name, reader, "")) for name, reader in OPAQUE if name in values
    )
    if not (metadata or frontend or backend_config or extra):
        return NO_ANNOTATIONS
    return Annotations(metadata, frontend, backend_config, extra)


def _control_predecessors(values: AttrValues) -> tuple[tuple[str, int], ...]:
    scanner = values.pop("control-predecessors")
    if scanner is None:
        return ()
    names = tuple(read_name(scanner, "an instruction's name") for _ in scanner.items())
    if not names:
        scanner.fail("expected an instruction's name in control-predecessors", scanner.pos - 1)
    scanner.finish()
    return names
