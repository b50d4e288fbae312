"""Records of kernels: plain data that both back ends read, one file for each kind."""
