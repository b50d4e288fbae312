"""Element operations in LLVM IR, one file for each family."""
