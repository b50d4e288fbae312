"""Two hosts on one machine: network namespaces joined by a link of a chosen rate and delay, and MPI ranks on them."""
