"""The constant splitter: users apart, scalars and annotated values shared, no communication through a counter."""

from __future__ import annotations

from partitioner.annotations.constant_splitter import merge_constants, split_constants
from partitioner.spmd_partitioner import partition_module
from spmd.analysis.cost import module_cost
from spmd.hlo import HloModule, Opcode
from spmd.text.parser import parse_module

#: y's rows are split; the counter that numbers them also numbers what is sorted whole.
SHARED_COUNTER = """HloModule shared_counter
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
ENTRY main {
  y = s32[16,8] parameter(0), sharding={devices=[4,1]<=[4]}
  k = s32[] parameter(1), sharding={replicated}
  i = s32[16] iota(), iota_dimension=0
  rows = s32[16,8] broadcast(i), dimensions={0}
  numbered = s32[16,8] add(y, rows)
  key = s32[16] broadcast(k), dimensions={}
  mixed = s32[16] xor(i, key)
  order = s32[16] sort(mixed), dimensions={0}, to_apply=less
  ROOT t = (s32[16,8], s32[16]) tuple(numbered, order)
}
"""


def split(text: str) -> HloModule:
    module = parse_module(text)
    split_constants(module)
    return module


def operand_names(module: HloModule, name: str) -> list[str]:
    (found,) = [i for i in module.entry.instructions if i.name == name]
    return [operand.name for operand in found.operands]


OPS = ("add", "multiply", "maximum", "minimum")


def entry(body: str) -> str:
    return f"HloModule m\nENTRY main {{\n{body}\n}}\n"


def test_a_sharding_does_not_pass_through_a_shared_counter() -> None:
    module = partition_module(parse_module(SHARED_COUNTER), 4)
    assert module_cost(module).wire_bytes == 0


def test_each_user_gets_its_own_expression() -> None:
    module = split(
        entry("""
  x = s32[8] parameter(0)
  i = s32[8] iota(), iota_dimension=0
  two = s32[] constant(2)
  b = s32[8] broadcast(two), dimensions={}
  e = s32[8] multiply(i, b)
  p = s32[8] add(e, x)
  q = s32[8] xor(e, x)
  ROOT t = (s32[8], s32[8]) tuple(p, q)
""")
    )
    (first, _), (second, _) = operand_names(module, "p"), operand_names(module, "q")
    assert first != second
    assert not set(operand_names(module, first)) & set(operand_names(module, second))
    assert sum(i.name.startswith("two") for i in module.entry.instructions) == 1


def test_one_user_reads_one_copy_but_a_tuple_one_for_each_element() -> None:
    module = split(
        entry("""
  i = s32[8] iota(), iota_dimension=0
  square = s32[8] multiply(i, i)
  z = f32[4] constant({1, 2, 3, 4})
  ROOT t = (s32[8], f32[4], f32[4]) tuple(square, z, z)
""")
    )
    assert operand_names(module, "square") == ["i", "i"]
    _, first, second = operand_names(module, "t")
    assert first != second


def test_an_annotated_value_stays_one() -> None:
    text = entry("""
  x = s32[8] parameter(0)
  i = s32[8] iota(), iota_dimension=0, sharding={devices=[4]<=[4]}
  p = s32[8] add(i, x)
  q = s32[8] xor(i, x)
  ROOT t = (s32[8], s32[8]) tuple(p, q)
""")
    assert str(split(text)) == str(parse_module(text))


def test_equal_copies_become_one_again() -> None:
    """Copies are joined with their operands, and masks too; copies of other shapes, attributes or values stay apart."""
    module = parse_module(
        entry("""
  d = s32[] parameter(0)
  x = s32[8] parameter(1)
  i = s32[8] iota(), iota_dimension=0
  j = s32[8] iota(), iota_dimension=0
  k = s32[4] iota(), iota_dimension=0
  two = s32[] constant(2)
  deux = s32[] constant(2)
  three = s32[] constant(3)
  b = s32[8] broadcast(two), dimensions={}
  c = s32[8] broadcast(deux), dimensions={}
  e = s32[8] broadcast(three), dimensions={}
  f = s32[8] broadcast(d), dimensions={}
  g = s32[8] broadcast(d), dimensions={}
  bi = s32[8] multiply(b, i)
  cj = s32[8] multiply(c, j)
  m = pred[8] compare(i, f), direction=LT
  n = pred[8] compare(j, g), direction=LT
  l = pred[8] compare(j, g), direction=GT
  p = s32[8] add(x, x)
  q = s32[8] add(x, x)
  ROOT t = (s32[8], s32[8], pred[8], pred[8], pred[8], s32[8], s32[8], s32[8], s32[4]) tuple(bi, cj, m, n, l, p, q, e, k)
""")
    )
    merge_constants(module)
    assert operand_names(module, "t") == ["bi", "bi", "m", "m", "l", "p", "q", "e", "k"]
    assert operand_names(module, "l") == ["i", "f"]


def test_partitioning_leaves_one_of_each_constant_expression() -> None:
    users = "\n".join(f"  y{n} = f32[16,8] {op}(x, b)" for n, op in enumerate(OPS))
    text = entry(f"""
  x = f32[16,8] parameter(0), sharding={{devices=[4,1]<=[4]}}
  one = f32[] constant(1)
  b = f32[16,8] broadcast(one), dimensions={{}}
{users}
  ROOT t = ({", ".join(["f32[16,8]"] * len(OPS))}) tuple({", ".join(f"y{n}" for n in range(len(OPS)))})
""")
    module = partition_module(parse_module(text), 4)
    assert sum(1 for _ in module.entry.with_opcode(Opcode.BROADCAST)) == 1


def test_copies_are_at_most_as_many_as_instructions() -> None:
    """Each step reads the two before it: unfolded, there would be a Fibonacci number of copies."""
    lines = ["  x0 = s32[8] iota(), iota_dimension=0", "  x1 = s32[8] negate(x0)"]
    lines += [f"  x{n} = s32[8] add(x{n - 1}, x{n - 2})" for n in range(2, 60)]
    lines[-1] = "  ROOT " + lines[-1].strip()
    module = split(entry("\n".join(lines)))
    assert len(module.entry) == 2 * 60
