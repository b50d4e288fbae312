"""`spmd calibrate`: measures this machine with native code of the kinds that programs contain, and describes it."""
