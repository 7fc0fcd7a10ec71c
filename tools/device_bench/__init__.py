"""How long steps on a device wait for batches: reader beside PyTorch's and Paddle's loaders."""
