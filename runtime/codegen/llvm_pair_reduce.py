"""Native code of a reduction by any program whatever, which combines neighbours, then neighbours of the results.

The grouping is the reference evaluator's, so that a reducer that is not associative, too, gives what it gives there.
Elements come one by one: with element e as many partial results are combined as e, in binary, ends in ones. What is
left over at the end is combined from the right, and the initial value comes first.
"""

from __future__ import annotations

from functools import cache

from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_nest import INDEPENDENT, Cursor
from runtime.codegen.llvm_reduce import FUNCTION, ReduceForm, ReduceWriter
from runtime.codegen.scalar_program import program_ir

#: Of partial results: no row has more elements than 2 to this.
LEVELS = 48


@cache
def pair_reduce_code(form: ReduceForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed ``ReduceWords``."""
    return host_jit().compile(pair_reduce_ir(form), (FUNCTION,))


def pair_reduce_ir(form: ReduceForm) -> str:
    return "\n".join(
        [*_BITS, *dict.fromkeys(program_ir(form.program, "combine")), _Pairs(form).function()]
    )


_BITS = ("declare i64 @llvm.cttz.i64(i64, i1)", "declare i64 @llvm.ctpop.i64(i64)")


class _Pairs(ReduceWriter):
    """``totals`` is what is being carried up; ``partial`` by level what waits for its right neighbour."""

    def __init__(self, form: ReduceForm) -> None:
        super().__init__(form)
        allocate = self.writer.value
        self.partial = [
            allocate(f"alloca [{LEVELS} x [{form.rows} x {t}]], align 64") for t in self.types
        ]
        self.number, self.left = allocate("alloca i64"), allocate("alloca i64")

    def totals_of(self, here: dict[int, str], strides: dict[int, str], count: str) -> None:
        writer, value = self.writer, self.writer.value
        with writer.element_loop(count) as k:
            for i in range(self.count):
                self.put(i, k, self.inits[i])
        with writer.unless_zero(self.elements):
            writer.add(f"store i64 0, ptr {self.number}")
            self.walk(0, {i: here[i] for i in range(self.count)}, strides, count)
            lowest = value(f"call i64 @llvm.cttz.i64(i64 {self.elements}, i1 true)")
            self.copy(self.level(lowest), self.totals_at(), count)
            below = value(f"sub i64 {self.elements}, 1")
            writer.add(f"store i64 {value(f'and i64 {self.elements}, {below}')}, ptr {self.left}")
            waiting = value(f"call i64 @llvm.ctpop.i64(i64 {self.elements})")
            others = value(f"sub i64 {waiting}, 1")
            with writer.unless_zero(others), writer.loop(others, {}):
                left = value(f"load i64, ptr {self.left}")
                lowest = value(f"call i64 @llvm.cttz.i64(i64 {left}, i1 true)")
                below = value(f"sub i64 {left}, 1")
                writer.add(f"store i64 {value(f'and i64 {left}, {below}')}, ptr {self.left}")
                self.combine(self.level(lowest), count)
            with writer.element_loop(count) as k:
                totals = [self.get(i, k) for i in range(self.count)]
                for i, total in enumerate(self.combined(self.inits, totals)):
                    self.put(i, k, total)

    def take(self, here: dict[int, str], strides: dict[int, str], count: str) -> None:
        writer, value = self.writer, self.writer.value
        with writer.element_loop(count) as k:
            for i in range(self.count):
                self.put(i, k, self.element(i, here, strides, k))
        number = value(f"load i64, ptr {self.number}")
        following = value(f"add i64 {number}, 1")
        writer.add(f"store i64 {following}, ptr {self.number}")
        pairs = value(f"call i64 @llvm.cttz.i64(i64 {following}, i1 true)")
        step = {i: self.level_bytes(i) for i in range(self.count)}
        cursors = {i: Cursor(self.partial[i], str(step[i])) for i in range(self.count)}
        with writer.unless_zero(pairs), writer.loop(pairs, cursors) as (_, at):
            self.combine(at, count)
        self.copy(self.totals_at(), self.level(pairs), count)

    def level_bytes(self, i: int) -> int:
        return self.form.rows * self.form.program.kind_of(self.form.program.results[i]).byte_size

    def level(self, number: str) -> dict[int, str]:
        places = {}
        for i in range(self.count):
            way = self.writer.value(f"mul i64 {number}, {self.level_bytes(i)}")
            places[i] = self.writer.value(f"getelementptr i8, ptr {self.partial[i]}, i64 {way}")
        return places

    def totals_at(self) -> dict[int, str]:
        return dict(enumerate(self.totals))

    def combine(self, left: dict[int, str], count: str) -> None:
        """What is carried, from the left with what lies there."""
        with self.writer.element_loop(count) as k:
            first = [self.at(left, i, k) for i in range(self.count)]
            totals = [self.get(i, k) for i in range(self.count)]
            for i, total in enumerate(self.combined(first, totals)):
                self.put(i, k, total)

    def copy(self, source: dict[int, str], target: dict[int, str], count: str) -> None:
        with self.writer.element_loop(count) as k:
            for i in range(self.count):
                place = self.writer.value(
                    f"getelementptr {self.types[i]}, ptr {target[i]}, i64 {k}"
                )
                value = self.at(source, i, k)
                self.writer.add(f"store {self.types[i]} {value}, ptr {place}{INDEPENDENT}")

    def at(self, places: dict[int, str], i: int, k: str) -> str:
        place = self.writer.value(f"getelementptr {self.types[i]}, ptr {places[i]}, i64 {k}")
        return self.writer.value(f"load {self.types[i]}, ptr {place}{INDEPENDENT}")
