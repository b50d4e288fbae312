"""Programs of products with gelu and with its gradient, as frameworks write them."""

from __future__ import annotations

from tests.runtime.gpu.product_epilogues import TOLERANCES, Program

#: y, the gelu of x, as JAX writes it and in two other orders of operations.
FORMS = {
    "jax": """
  xx = T[M,N] multiply(x, x)
  xxx = T[M,N] multiply(xx, x)
  ax = T[M,N] multiply(xxx, a)
  i = T[M,N] add(x, ax)
  ci = T[M,N] multiply(i, c)
  t = T[M,N] tanh(ci)
  u = T[M,N] add(t, one)
  h = T[M,N] multiply(u, half)
  y = T[M,N] multiply(x, h)""",
    "factored": """
  xx = T[M,N] multiply(x, x)
  ax = T[M,N] multiply(a, xx)
  i = T[M,N] add(one, ax)
  cx = T[M,N] multiply(c, x)
  ci = T[M,N] multiply(cx, i)
  t = T[M,N] tanh(ci)
  u = T[M,N] add(one, t)
  hx = T[M,N] multiply(half, x)
  y = T[M,N] multiply(hx, u)""",
    "logistic": """
  xxx = T[M,N] power(x, three)
  ax = T[M,N] multiply(a, xxx)
  i = T[M,N] add(x, ax)
  ci = T[M,N] multiply(c, i)
  cc = T[M,N] add(ci, ci)
  s = T[M,N] logistic(cc)
  y = T[M,N] multiply(x, s)""",
}
#: The gradient of gelu at x times d, as JAX derives it from its own form.
GRADIENT = """
  xx = T[M,N] multiply(x, x)
  xxx = T[M,N] multiply(xx, x)
  ax = T[M,N] multiply(xxx, a)
  i = T[M,N] add(x, ax)
  ci = T[M,N] multiply(i, c)
  t = T[M,N] tanh(ci)
  u = T[M,N] add(t, one)
  h = T[M,N] multiply(u, half)
  dh = T[M,N] multiply(d, h)
  dx = T[M,N] multiply(x, d)
  dxh = T[M,N] multiply(dx, half)
  v = T[M,N] subtract(one, t)
  s = T[M,N] multiply(dxh, v)
  st = T[M,N] multiply(s, t)
  ss = T[M,N] add(s, st)
  sc = T[M,N] multiply(ss, c)
  p = T[M,N] add(dh, sc)
  sa = T[M,N] multiply(sc, a)
  xx3 = T[M,N] multiply(xx, three)
  q = T[M,N] multiply(sa, xx3)
  y = T[M,N] add(p, q)"""

_MODULE = """HloModule gelu

ENTRY e {
  l = T[M,K] parameter(0)
  r = T[K,N] parameter(1)
  half1 = T[] constant(0.5)
  half = T[M,N] broadcast(half1), dimensions={}
  one1 = T[] constant(1)
  one = T[M,N] broadcast(one1), dimensions={}
  three1 = T[] constant(3)
  three = T[M,N] broadcast(three1), dimensions={}
  a1 = T[] constant(0.044715)
  a = T[M,N] broadcast(a1), dimensions={}
  c1 = T[] constant(0.7978845608)
  c = T[M,N] broadcast(c1), dimensions={}
BODY
}
"""
_DOT = "dot(l, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_BIAS = """
  b1 = T[N] parameter(2)
  b = T[M,N] broadcast(b1), dimensions={1}
  x = T[M,N] add(d, b)"""


def gelu_program(
    form: str = "jax",
    kind: str = "f32",
    *,
    bias: bool = False,
    keeps: bool = False,
    rows: int = 24,
    columns: int = 40,
) -> Program:
    """Return gelu of a product, or of its sum with a bias. keeps: the argument is a second result."""
    before = f"  d = T[M,N] {_DOT}{_BIAS}" if bias else f"  x = T[M,N] {_DOT}"
    body = before + FORMS[form]
    if keeps:
        body += "\n  ROOT o = (T[M,N], T[M,N]) tuple(x, y)"
    return _program(body if keeps else _returning_y(body), kind, rows, columns)


def gradient_program(kind: str = "f32", rows: int = 24, columns: int = 40) -> Program:
    """Return the product of a matrix product and the gradient of gelu at another array."""
    body = f"  d = T[M,N] {_DOT}\n  x = T[M,N] parameter(2){GRADIENT}"
    return _program(_returning_y(body), kind, rows, columns)


def _returning_y(body: str) -> str:
    return body.replace("  y = ", "  ROOT y = ")


def _program(body: str, kind: str, rows: int, columns: int) -> Program:
    text = _MODULE.replace("BODY", body)
    for name, value in (("T[", f"{kind}["), ("M,", f"{rows},"), (",N]", f",{columns}]")):
        text = text.replace(name, value)
    text = text.replace("[N]", f"[{columns}]").replace("K]", "16]").replace("[K,", "[16,")
    return Program(text, TOLERANCES[kind])
