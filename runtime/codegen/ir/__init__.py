"""LLVM IR that both back ends share: element operations, scalar programs, index loops."""
