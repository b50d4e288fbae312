"""Why a program is sharded as it is: causes of shardings and collectives, conflicts, and what would remove them."""
