"""Everything true of collectives: passes over them, their schedule, and the communicators that run them."""
