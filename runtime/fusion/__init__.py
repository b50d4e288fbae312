"""Fusions: what a kernel of several instructions computes, and the emitter that makes it."""
