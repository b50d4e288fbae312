"""LLVM IR of convolutions: packing, inner loops and storing, for each algorithm."""
