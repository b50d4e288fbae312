"""Literals in text: ``42``, ``{ {1, 2}, {3, 4} }``, ``(1, -2.5)``, ``nan(0x7fc0)``; and back, bit for bit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from spmd.errors import UnsupportedError
from spmd.limits import MAX_IMPLIED, MAX_LEAVES, MAX_NESTING
from spmd.literal import Literal, NDArray
from spmd.shape import COMPLEX_PARTS, ArrayShape, PrimitiveType, Shape, TupleShape
from spmd.text.float_text import FLOAT_FORMATS, float_texts, is_nan_word, nan_bits
from spmd.text.lexer import Scanner

_WORD = re.compile(r"[^\s{}(),/]++(?:\(0x[0-9a-fA-F]++\))?")
_ELIDED = re.compile(r"\{\s*+\.\.\.\s*+\}")
_INTEGER = re.compile(r"-?[0-9]++")
#: Floats as XLA's lexer reads them: without a leading plus, not a single point; ``inf`` only as a word.
_FLOAT = re.compile(
    r"-?(?:[0-9]++(?:\.[0-9]*+)?(?:[eE][+-]?[0-9]++)?|(?<=-)\.[0-9]++(?:[eE][+-]?[0-9]++)?|inf)"
)
#: Least positive integer that s64 cannot represent, so that XLA's lexer wraps it.
_WRAPS = 2**63
#: Integers of up to this many characters always fit s64.
_SURE = 18
#: More digits than any 64-bit number has without leading zeros.
_MAX_LENGTH = 20


# ---- reading
def read_literal(scanner: Scanner, shape: Shape, depth: int = 0) -> Literal | None:
    """Read a literal of ``shape`` at the scanner's position. Returns None if it is elided (``{...}``).

    Memory is allocated only after the text is known to have as many values as the shape has elements.
    """
    if isinstance(shape, TupleShape):
        if depth == 0 and scanner.match(_ELIDED):
            return None
        return _read_tuple(scanner, shape, depth)
    if not isinstance(shape, ArrayShape):
        scanner.fail(f"a literal cannot have the shape {shape}")
    if shape.rank and scanner.match(_ELIDED):
        return None
    start = scanner.skip_space()
    if shape.rank and not scanner.peek("{"):
        return _read_first(scanner, shape, depth)
    values = _Values(scanner, shape)
    values.read(0, 0)
    if values.is_elided:
        return None
    array = _to_array(values, shape.element_type)
    if array.size != shape.num_elements:
        scanner.fail(
            f"expected {shape.num_elements} elements for {shape}, found {array.size}", start
        )
    try:
        array = array.reshape(shape.dims)
    except ValueError:  # empty, with sizes whose product NumPy cannot address
        scanner.fail(f"a constant of shape {shape} cannot be held in memory", start)
    array.setflags(write=False)
    return Literal(shape.without_layout(), array)


def _read_first(scanner: Scanner, shape: ArrayShape, depth: int) -> Literal:
    """Read a number without braces for an array: as in XLA it is the first element, and the others are zero.

    The system provides zeros without touching memory, so they cost nothing until they are read.
    """
    start = scanner.pos
    kind = shape.element_type
    refusal = f"expected '{{' for dimension 0 of {shape}, found {scanner.found()}"
    if kind.is_complex or not shape.num_elements:
        scanner.fail(refusal)
    scanner.source.imply_zeros(shape.num_elements, start)
    first = _Values(scanner, ArrayShape(kind, ()))
    first.read(0, 0)
    if depth == 0 and scanner.peek(","):
        scanner.fail(refusal, start)
    array = np.zeros(shape.num_elements, kind.numpy)
    array[0] = _to_array(first, kind)[0]
    array = array.reshape(shape.dims)
    array.setflags(write=False)
    return Literal(shape.without_layout(), array)


def _read_tuple(scanner: Scanner, shape: TupleShape, depth: int) -> Literal | None:
    if depth > MAX_NESTING:
        scanner.fail(f"literals are nested deeper than {MAX_NESTING}")
    scanner.expect("(")
    elements: list[Literal] = []
    elided = False
    for i, element in enumerate(shape.elements):
        if i:
            scanner.expect(",")
        value = read_literal(scanner, element, depth + 1)
        if value is None:
            elided = True
        else:
            elements.append(value)
    scanner.expect(")")
    return None if elided else Literal.tuple_of(tuple(elements))


class _Values:
    """The number tokens of a literal, read while braces are checked against the dimensions."""

    def __init__(self, scanner: Scanner, shape: ArrayShape) -> None:
        self.scanner = scanner
        self.shape = shape
        self.is_complex = shape.element_type.is_complex
        self.tokens: list[str] = []
        self.starts: list[int] = []
        #: ``{1, 2, ...}``: XLA omits the values.
        self.is_elided = False

    def read(self, dim: int, depth: int) -> None:
        scanner = self.scanner
        if depth > MAX_NESTING:
            scanner.fail(f"literals are nested deeper than {MAX_NESTING}")
        if dim == self.shape.rank:
            self._element()
            return
        start = scanner.skip_space()
        if not scanner.consume_if("{"):
            scanner.fail(
                f"expected '{{' for dimension {dim} of {self.shape}, found {scanner.found()}"
            )
        size = self.shape.dims[dim]
        count = 0
        while not scanner.consume_if("}"):
            if scanner.consume_if(","):  # XLA neither requires nor rejects it
                continue
            if dim == 0 and scanner.consume_if("..."):
                self._rest_of_elided()
                return
            if count >= size and not scanner.at_end:
                scanner.fail(
                    f"expected {size} elements in dimension {dim} of {self.shape}, found more"
                )
            if dim == self.shape.rank - 1:
                count += self._row(size - count)
            else:
                self.read(dim + 1, depth + 1)
                count += 1
        if count != size:
            scanner.fail(
                f"expected {size} elements in dimension {dim} of {self.shape}, found {count}", start
            )

    def _rest_of_elided(self) -> None:
        self.is_elided = True
        while self.scanner.consume_if(",") or self.scanner.consume_if("..."):
            pass
        self.scanner.expect("}")

    def _row(self, room: int) -> int:
        """Read elements up to the closing brace or a comment; a plain run of numbers is read at once."""
        scanner = self.scanner
        found = scanner.match(_COMPLEX_RUN if self.is_complex else _RUN)
        if found is None:
            self._element()
            return 1
        tokens = found.group().translate(_PUNCTUATION).split()
        count = len(tokens) // 2 if self.is_complex else len(tokens)
        if count > room:
            scanner.fail(
                f"expected {self.shape.dims[-1]} elements in the last dimension of {self.shape}, found more",
                found.start(),
            )
        self.tokens.extend(tokens)
        self.starts.extend([found.start()] * len(tokens))
        return count

    def _element(self) -> None:
        scanner = self.scanner
        if self.is_complex:
            scanner.expect("(")
            self._number()
            scanner.expect(",")
            self._number()
            scanner.expect(")")
        else:
            self._number()

    def _number(self) -> None:
        found = self.scanner.need(_WORD, "a number")
        self.tokens.append(found.group())
        self.starts.append(found.start())


#: Numbers separated by commas and blanks, without comments.
_RUN = re.compile(r"(?!\.\.\.)[\w.+\-]++(?![\w.(])(?>(?:[\s,]*+(?!\.\.\.)[\w.+\-]++(?![\w.(]))*)")
#: The same for pairs in parentheses.
_PAIR = r"\(\s*+[\w.+\-]++\s*+,\s*+[\w.+\-]++\s*+\)"
_COMPLEX_RUN = re.compile(rf"{_PAIR}(?>(?:[\s,]*+{_PAIR})*)")
_PUNCTUATION = str.maketrans("(),", "   ")


def _to_array(values: _Values, kind: PrimitiveType) -> NDArray:
    scanner = values.scanner
    if kind.is_complex:
        parts = _floats(values, COMPLEX_PARTS[kind])
        return np.ascontiguousarray(parts).view(kind.numpy)
    if kind.is_floating:
        return _floats(values, kind)
    if kind is PrimitiveType.PRED:
        bools = [
            _bool(word, scanner, start)
            for word, start in zip(values.tokens, values.starts, strict=True)
        ]
        return np.array(bools, dtype=np.bool_)
    return _integers(values, kind)


def _bool(word: str, scanner: Scanner, start: int) -> bool:
    if word in ("true", "false"):
        return word == "true"
    if not _INTEGER.fullmatch(word):
        scanner.fail(f"expected true or false, found {word!r}", start)
    number = _signed(word)
    if number is None:
        scanner.fail(f"{word} does not fit in pred", start)
    return number != 0


def _signed(word: str) -> int | None:
    """Return the s64 that XLA's lexer makes of an integer: numbers from 2^63 to 2^64-1 wrap around.

    Returns None for numbers outside 64 bits.
    """
    magnitude = word.lstrip("-").lstrip("0")
    number = int(magnitude or "0") if len(magnitude) <= _MAX_LENGTH else 2**64
    if word[0] == "-":
        number = -number
    if not -_WRAPS <= number < 2**64:
        return None
    return number - 2**64 if number >= _WRAPS else number


def integer_range(kind: PrimitiveType) -> tuple[int, int]:
    bits = kind.bits
    if kind.is_signed_integer:
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1


def _integers(values: _Values, kind: PrimitiveType) -> NDArray:
    low, high = integer_range(kind)
    numbers: list[int] = []
    for word, start in zip(values.tokens, values.starts, strict=True):
        if not _INTEGER.fullmatch(word):
            values.scanner.fail(f"expected an integer for {kind}, found {word!r}", start)
        number = int(word) if len(word) <= _SURE else _signed(word)
        if number is not None and kind is PrimitiveType.U64:  # any 64 bits
            number &= high
        if number is None or not low <= number <= high:
            values.scanner.fail(f"{word} does not fit in {kind} ({low}..{high})", start)
        numbers.append(number)
    wide = np.uint64 if high >= 2**63 else np.int64
    return np.array(numbers, dtype=wide).astype(kind.numpy)


def _floats(values: _Values, kind: PrimitiveType) -> NDArray:
    float_format = FLOAT_FORMATS[kind]
    numbers: list[float] = []
    payloads: list[tuple[int, int]] = []
    for i, (word, start) in enumerate(zip(values.tokens, values.starts, strict=True)):
        if _FLOAT.fullmatch(word) is not None:
            number = _number(word, values, start)
        elif (bits := nan_bits(word, float_format)) is not None:
            number = math.nan
            payloads.append((i, bits))
        elif is_nan_word(word):
            values.scanner.fail(f"the payload of {word} does not fit in {kind}", start)
        else:
            values.scanner.fail(f"expected a number, found {word!r}", start)
        numbers.append(number)
    wide = np.array(numbers, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        array = wide.astype(float_format.dtype)
        _check_range(values, kind, wide, array)
    if payloads:
        view = array.view(float_format.unsigned)
        for i, pattern in payloads:
            view[i] = pattern
    return array


def _check_range(values: _Values, kind: PrimitiveType, wide: NDArray, array: NDArray) -> None:
    """Raise HloParseError if a finite number is not finite in the element type. Types without an infinity read ``inf``
    as their nan.
    """
    lost = np.isfinite(wide) & ~np.isfinite(array.astype(np.float64))
    if lost.any():
        i = int(np.argmax(lost))
        values.scanner.fail(f"{values.tokens[i]} does not fit in {kind}", values.starts[i])


def _number(word: str, values: _Values, start: int) -> float:
    number = float(word)
    if math.isinf(number) and not word.endswith("inf"):
        values.scanner.fail(f"{word} does not fit in f64, the widest type", start)
    if abs(number) >= _WRAPS and _INTEGER.fullmatch(word):
        integer = _signed(word)
        if integer is None:
            values.scanner.fail(f"{word} is too large for a whole number; write {number:g}", start)
        return float(integer)
    return number


# ---- printing
def format_literal(literal: Literal) -> str:
    """Return the literal's text, without its shape."""
    if literal.array is None:
        return f"({', '.join(map(format_literal, literal.elements))})"
    kind = (
        literal.shape.element_type if isinstance(literal.shape, ArrayShape) else PrimitiveType.F32
    )
    if _is_first_alone(literal.array):
        return next(iter(format_elements(literal.array.reshape(-1)[:1], kind)))
    texts = list(format_elements(literal.array, kind))
    if literal.array.ndim == 0:
        return texts[0]
    return _braces(texts, literal.array.shape)


def _is_first_alone(array: NDArray) -> bool:
    """Return whether the array is very large and all elements but the first are (positive) zeros, so that the first one
    is text enough.
    """
    if array.size <= MAX_IMPLIED or array.dtype.kind == "c":
        return False
    flat = array.reshape(-1)
    return not flat[1:].view(np.uint8).any()


def _braces(texts: list[str], dims: tuple[int, ...], index: tuple[int, ...] = ()) -> str:
    """Return the elements in XLA's one-line format: spaces inside braces from rank 2 on, ``/*i0=..*/`` comments above
    rank 3.
    """
    rank = len(dims) + len(index)
    if len(dims) == 1:
        blank = " " if rank > 1 and dims[0] > 1 else ""
        return f"{{{blank}{', '.join(texts)}{blank}}}"
    comment = f"/*i{len(index) - 1}={index[-1]}*/ " if rank > 3 and index else ""
    step = math.prod(dims[1:])
    if dims[0] > MAX_LEAVES and not texts:
        raise UnsupportedError(f"{dims[0]} rows without elements are not written out")
    parts = [
        _braces(texts[i * step : (i + 1) * step], dims[1:], (*index, i)) for i in range(dims[0])
    ]
    return f"{{ {comment}{', '.join(parts)} }}"


def format_elements(array: NDArray, kind: PrimitiveType) -> Iterator[str]:
    """Return the text of each element in row-major order; each reads back to the same bits."""
    flat = array.reshape(-1)
    if kind is PrimitiveType.PRED:
        return ("true" if value else "false" for value in flat.tolist())
    if kind.is_complex:
        parts = COMPLEX_PARTS[kind]
        numbers = np.ascontiguousarray(flat).view(parts.numpy)
        texts = iter(float_texts(numbers, parts))
        return (f"({real}, {imag})" for real, imag in zip(texts, texts, strict=True))
    if kind.is_floating:
        return iter(float_texts(flat, kind))
    return (str(int(value)) for value in flat)
