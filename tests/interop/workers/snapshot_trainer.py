# SPDX-License-Identifier: BSD-3-Clause
"""A training script in the style of PyTorch's guides: DDP over gloo, a DataLoader with its own processes, and a
snapshot after each epoch, from which it resumes when it is started again.

usage: snapshot_trainer.py SNAPSHOT [--die-in EPOCH]    kills rank 1 in that epoch, if there was no snapshot
"""
import argparse
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

EPOCHS = 6


class Waves(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.points = torch.randn(192, 8, generator=generator)
        self.values = torch.sin(self.points.sum(dim=1, keepdim=True))

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        return self.points[index], self.values[index]


class Trainer:
    def __init__(self, path, die_in):
        self.path, self.die_in = path, die_in
        self.rank = int(os.environ["RANK"])
        torch.manual_seed(0)
        self.network = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=0.01)
        self.first = 0
        if os.path.exists(path):
            self.load()
        self.model = DistributedDataParallel(self.network)
        data = Waves()
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=16, sampler=self.sampler, num_workers=2, persistent_workers=True)
        self.data = data

    def load(self):
        snapshot = torch.load(self.path)
        self.network.load_state_dict(snapshot["network"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.first = snapshot["epochs"]
        print(f"rank {self.rank} goes on after epoch {self.first}", flush=True)

    def save(self, epochs):
        torch.save({"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "epochs": epochs},
                   self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def train(self):
        for epoch in range(self.first, EPOCHS):
            self.sampler.set_epoch(epoch)
            for step, (points, values) in enumerate(self.loader):
                if self.rank == 1 and self.first == 0 and epoch == self.die_in and step == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.optimizer.zero_grad()
                torch.nn.functional.mse_loss(self.model(points), values).backward()
                self.optimizer.step()
            if self.rank == 0:
                self.save(epoch + 1)

    def loss(self):
        with torch.no_grad():
            return torch.nn.functional.mse_loss(self.network(self.data.points), self.data.values).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("snapshot")
    parser.add_argument("--die-in", type=int)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    trainer = Trainer(options.snapshot, options.die_in)
    trainer.train()
    if trainer.rank == 0:
        print(f"final loss {trainer.loss():.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.3)  # 2.15's Gloo sometimes aborts if the interpreter ends right after; see gloo_worker.py


if __name__ == "__main__":
    main()
