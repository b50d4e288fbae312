"""HloInstruction: one node of a computation's graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

from spmd.errors import VerificationError
from spmd.hlo.opcode import NO_ATTRS, Attrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, Shape, as_array

if TYPE_CHECKING:
    from spmd.hlo.computation import HloComputation
    from spmd.sharding import HloSharding

A = TypeVar("A", bound="Attrs")


@dataclass(frozen=True, slots=True)
class OpMetadata:
    """Origin of an instruction. ``extra`` keeps the fields that are not read here, as (key, text) in order."""

    op_type: str = ""
    op_name: str = ""
    source_file: str = ""
    source_line: int = 0
    extra: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return self != _NO_METADATA


_NO_METADATA = OpMetadata()


@dataclass(frozen=True, slots=True)
class Annotations:
    """Text that an instruction carries besides its meaning; passes preserve it and few read it.

    ``frontend_attributes``: (key, value) pairs with verbatim values (quoted ones without their quotes, see ``quoted``).
    ``extra``: rarely used attributes by name with their text (statistics, origin, result_accuracy, ...). ``profile``:
    the fields of a proto's OpMetadata that have no text form (sizes of code, profiles), undecoded.
    """

    metadata: OpMetadata = _NO_METADATA
    frontend_attributes: tuple[tuple[str, str], ...] = ()
    backend_config: str = ""
    extra: tuple[tuple[str, str], ...] = field(default=())
    profile: bytes = b""

    def of_parts(self) -> Annotations:
        """Return the annotations for each of several instructions that together replace the one with these."""
        return Annotations(metadata=self.metadata, frontend_attributes=self.frontend_attributes)

    def frontend(self, key: str) -> str | None:
        for name, value in self.frontend_attributes:
            if name == key:
                return value
        return None


NO_ANNOTATIONS = Annotations()


class HloInstruction:
    """One operation: opcode, operands, result shape, attributes.

    Mutable, compared by identity. Edit only through HloComputation and the methods here, which keep the invariants:

    I1 x in y.operands <=> y in x.users
    I2 operands and users lie in the same computation
    I3 the name is unique in the module
    I4 shape equals the shape inferred from opcode, operands and attributes (up to layout)
    I5 a control predecessor p of x has x among its control successors
    """

    __slots__ = (
        "_operands",
        "_users",
        "annotations",
        "attrs",
        "called_computations",
        "control_predecessors",
        "control_successors",
        "name",
        "opcode",
        "parent",
        "shape",
        "sharding",
    )

    def __init__(
        self,
        opcode: Opcode,
        shape: Shape,
        operands: Iterable[HloInstruction] = (),
        attrs: Attrs = NO_ATTRS,
        *,
        name: str = "",
        called_computations: Iterable[HloComputation] = (),
        sharding: HloSharding | None = None,
        annotations: Annotations = NO_ANNOTATIONS,
    ) -> None:
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.attrs = attrs
        self.sharding = sharding
        self.annotations = annotations
        self.called_computations: list[HloComputation] = list(called_computations)
        self.control_predecessors: list[HloInstruction] = []
        self.control_successors: list[HloInstruction] = []
        self.parent: HloComputation | None = None
        self._operands: list[HloInstruction] = list(operands)
        # A dict as an ordered set: users keep the order in which they were added, so nothing
        # depends on identity.
        self._users: dict[HloInstruction, None] = {}
        for operand in self._operands:
            operand._users[self] = None

    # ---- graph
    @property
    def operands(self) -> tuple[HloInstruction, ...]:
        return tuple(self._operands)

    @property
    def users(self) -> tuple[HloInstruction, ...]:
        """The users, each once, in the order in which the uses were made."""
        return tuple(self._users)

    @property
    def num_users(self) -> int:
        """The number of users, in constant time; ``len(users)`` is linear, and a parameter may have thousands."""
        return len(self._users)

    def operand(self, i: int) -> HloInstruction:
        return self._operands[i]

    @property
    def num_operands(self) -> int:
        return len(self._operands)

    @property
    def elements(self) -> tuple[HloInstruction, ...]:
        """The operands if this is a tuple instruction, and otherwise this instruction alone."""
        return self.operands if self.opcode is Opcode.TUPLE else (self,)

    def _append_operand(self, operand: HloInstruction) -> None:
        self._operands.append(operand)
        operand._users[self] = None

    def replace_operand(self, i: int, new: HloInstruction) -> None:
        old = self._operands[i]
        if old is new:
            return
        self._operands[i] = new
        new._users[self] = None
        if all(operand is not old for operand in self._operands):
            old._users.pop(self, None)

    def set_operands(self, operands: Iterable[HloInstruction]) -> None:
        self.drop_operands()
        for operand in operands:
            self._append_operand(operand)

    def drop_operands(self) -> None:
        for operand in self._operands:
            operand._users.pop(self, None)
        self._operands.clear()

    def replace_all_uses_with(self, new: HloInstruction) -> None:
        """Replace this instruction by ``new`` in every user, and as the computation's root."""
        for user in self.users:
            if user is not new:
                user._read_instead(self, new)
        if self.parent is not None and self.parent.root is self:
            self.parent.root = new

    @property
    def has_control_edges(self) -> bool:
        return bool(self.control_predecessors or self.control_successors)

    def add_control_dependency_to(self, successor: HloInstruction) -> None:
        """Make ``successor`` run after this instruction."""
        after, before = self.control_successors, successor.control_predecessors
        # Search the shorter of the two lists: one instruction may wait for, or delay, all others.
        known = successor in after if len(after) < len(before) else self in before
        if not known:
            after.append(successor)
            before.append(self)

    def _read_instead(self, old: HloInstruction, new: HloInstruction) -> None:
        """Replace every operand ``old`` by ``new``, by the list's own search: tuples may have thousands of operands."""
        operands = self._operands
        for _ in range(operands.count(old)):
            operands[operands.index(old)] = new
        del old._users[self]
        new._users[self] = None

    # ---- shape and attributes
    @property
    def array_shape(self) -> ArrayShape:
        """The shape, which must be an array. Raises ShapeError otherwise."""
        return as_array(self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        return as_array(self.shape).dims

    def attrs_as(self, kind: type[A]) -> A:
        """Return the attributes as ``kind``. Raises VerificationError if they are of another family."""
        if not isinstance(self.attrs, kind):
            raise VerificationError(
                f"{self.name}: {self.opcode} holds {type(self.attrs).__name__}, expected {kind.__name__}"
            )
        return self.attrs

    @property
    def to_apply(self) -> HloComputation:
        """The only (or first) called computation: reducer, call target, map function, ..."""
        return self.called_computations[0]

    @property
    def while_condition(self) -> HloComputation:
        return self.called_computations[0]

    @property
    def while_body(self) -> HloComputation:
        return self.called_computations[1]

    @property
    def is_root(self) -> bool:
        return self.parent is not None and self.parent.root is self

    def clone(
        self, shape: Shape, operands: Iterable[HloInstruction], *, attrs: Attrs | None = None
    ) -> HloInstruction:
        """Return a new, parentless instruction of the same opcode, attributes, callees, sharding and annotations."""
        return HloInstruction(
            self.opcode,
            shape,
            operands,
            self.attrs if attrs is None else attrs,
            name=self.name,
            called_computations=self.called_computations,
            sharding=self.sharding,
            annotations=self.annotations,
        )

    def __repr__(self) -> str:
        operands = ", ".join(operand.name for operand in self._operands)
        return f"{self.name} = {self.shape} {self.opcode}({operands})"
