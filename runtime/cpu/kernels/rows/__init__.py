"""Fusions with reductions along rows, such as softmax: the records bound to memory, and their LLVM IR."""
