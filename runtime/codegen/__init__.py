"""Native code: LLVM IR as text, compiled in process for this machine."""
