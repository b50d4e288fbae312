"""Matrix products: the algorithms by element type and size, and their LLVM IR."""
