"""A vectorizer for loops over elements, which works on the text of their LLVM IR."""
