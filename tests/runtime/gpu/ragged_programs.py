"""Programs with ragged products, as JAX 0.10.2 lowers them for a GPU."""

from __future__ import annotations

#: Gradients of sum(lax.ragged_dot(x, w, s, preferred_element_type=f32) ** 2) with respect to x and w.
GRADIENTS = """HloModule jit_g
ENTRY main.1 {
  x.1 = bf16[64,32]{1,0} parameter(0)
  w.1 = bf16[4,32,16]{2,1,0} parameter(1)
  s.1 = s32[4]{0} parameter(2)
  ragged_dot_general.5 = f32[64,16]{1,0} ragged-dot(x.1, w.1, s.1), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
  constant.1 = f32[] constant(2)
  mul.2 = f32[64,16]{1,0} broadcast(constant.1), dimensions={}
  mul.3 = f32[64,16]{1,0} multiply(ragged_dot_general.5, mul.2)
  ragged_dot_general.8 = f32[4,32,16]{2,1,0} convert(w.1)
  ragged_dot_general.9 = f32[64,32]{1,0} ragged-dot(mul.3, ragged_dot_general.8, s.1), lhs_contracting_dims={1}, rhs_contracting_dims={2}, lhs_ragged_dims={0}, rhs_group_dims={0}
  convert_element_type.3 = bf16[64,32]{1,0} convert(ragged_dot_general.9)
  ragged_dot_general.6 = f32[64,32]{1,0} convert(x.1)
  ragged_dot_general.7 = f32[4,32,16]{2,1,0} ragged-dot(ragged_dot_general.6, mul.3, s.1), lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}
  convert_element_type.2 = bf16[4,32,16]{2,1,0} convert(ragged_dot_general.7)
  ROOT tuple.1 = (bf16[64,32]{1,0}, bf16[4,32,16]{2,1,0}) tuple(convert_element_type.3, convert_element_type.2)
}
"""
