"""The verifier: is a module what its stage promises?"""

from spmd.verifier.verifier import RULES, verify

__all__ = ["RULES", "verify"]
