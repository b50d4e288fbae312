"""Fusions with reductions along rows, such as softmax: records bound to memory, and their LLVM IR."""
