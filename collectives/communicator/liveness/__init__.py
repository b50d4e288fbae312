"""Detection of late, dead and stopped ranks, and the time for which others wait for them."""
