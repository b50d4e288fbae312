"""Element operations in LLVM IR, one file per family."""
