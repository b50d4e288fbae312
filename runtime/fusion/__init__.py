"""Fusions: what a kernel of several instructions computes, and which emitter makes it."""
