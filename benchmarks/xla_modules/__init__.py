"""Modules in the tests of an XLA source tree, run here and by XLA CPU on the same inputs."""
