"""Checker of buffer assignments. It runs thunks on shadow memory, by rules that share no code with the assignment."""
