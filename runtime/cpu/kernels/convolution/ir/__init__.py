"""LLVM IR of convolutions: the packing, inner loops and stores of each algorithm."""
