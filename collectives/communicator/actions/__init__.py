"""Actions of one rank for a collective, as plain data: on arrays, over shared memory, and on a GPU."""
