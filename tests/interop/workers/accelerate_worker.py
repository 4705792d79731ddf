# SPDX-License-Identifier: BSD-3-Clause
"""A training script that leaves DDP to Hugging Face's accelerate, on CPUs."""
import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
points = torch.randn(64, 4)
data = TensorDataset(points, points.sum(dim=1, keepdim=True))
network = torch.nn.Linear(4, 1)
model, optimizer, loader = accelerator.prepare(network, torch.optim.SGD(network.parameters(), lr=0.1),
                                               DataLoader(data, batch_size=8))
for epoch in range(5):
    for batch, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(batch), targets))
        optimizer.step()
weights = accelerator.gather(accelerator.unwrap_model(model).weight.detach())
assert weights.shape == (accelerator.num_processes, 4), weights.shape
assert (weights == weights[0]).all(), weights  # all ranks have the same weights
loss = torch.nn.functional.mse_loss(accelerator.unwrap_model(model)(points), data.tensors[1]).item()
print(f"rank {accelerator.process_index} of {accelerator.num_processes}, {len(loader)} batches, loss below 0.01: "
      f"{loss < 0.01}", flush=True)
accelerator.end_training()
time.sleep(0.3)  # see gloo_worker.py
