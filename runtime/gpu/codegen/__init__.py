"""LLVM IR for a GPU, and PTX made from it. Kernel records and element operations are those of the processor."""
