"""Matrix products: algorithms by element type and size, and their LLVM IR."""
