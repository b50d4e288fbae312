"""Matrix products: the forms in which they are computed, by element type and size, and their LLVM IR."""
