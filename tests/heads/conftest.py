"""One torch thread: the oracle's tensors are small, and threads would mostly wait for each other."""

import torch

torch.set_num_threads(1)
