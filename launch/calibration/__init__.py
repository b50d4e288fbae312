"""`spmd calibrate`: this machine measured into a description, by native code of the kind that programs are made of."""
