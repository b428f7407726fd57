"""Trains on several ranks of one GPU with faults planted on one of them, and records each training on every rank.

usage: ranks.py FOLDER [--ranks N] [--rounds N] [--seed N]

Each process says that it is another host, so NCCL accepts the same device several times and talks over sockets; under
MPS (`nvidia-cuda-mps-control -d`) their kernels run side by side. All trainings run in the same processes, one after
the other, in an order and on ranks that the seed decides. Writes FOLDER/NUMBER-FAULT/rankR.json.gz, and cases.json with
the culprits and the step times without a profiler, in milliseconds.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time

FAULTS = ["none", "backward", "forward", "load", "optimizer", "sometimes"]
STEPS = dict(wait=4, warmup=2, active=6, repeat=1)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def start(options):
    processes = []
    port = str(20_000 + random.Random(os.getpid()).randrange(20_000))
    for rank in range(options.ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(options.ranks), NCCL_HOSTID=f"host{rank}")
        environment |= dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, NCCL_SOCKET_IFNAME="lo")
        environment |= dict(GLOO_SOCKET_IFNAME="lo")
        processes.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
    return max(process.wait() for process in processes)


def work(milliseconds):
    """Keeps the host busy."""
    until = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < until:
        pass


def train(options):
    import torch
    from torch import distributed as dist, nn
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(0)
    torch.manual_seed(0)
    dist.init_process_group("nccl", rank=rank, world_size=options.ranks)
    fault, culprit = "none", -1

    def mine(name):
        return fault == name and rank == culprit

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x.clone()

        @staticmethod
        def backward(_, gradient):
            if mine("backward"):
                torch.cuda._sleep(int(2e7))
            return gradient

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block(256) for _ in range(6))

        def forward(self, x):
            for index, block in enumerate(self.blocks):
                x = Slow.apply(block(x)) if index == 2 else block(x)
            if mine("forward"):
                with record_function("extra_loss"):
                    torch.cuda._sleep(int(2e7))
            return x

    model = nn.parallel.DistributedDataParallel(Model().cuda(), device_ids=[0], bucket_cap_mb=2)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def step(number):
        with record_function("train_step"):
            with record_function("load"):
                if mine("load"):
                    time.sleep(0.025)
                x = torch.randn(16384, 256, device="cuda")
            with record_function("forward"):
                loss = model(x).square().mean()
            with record_function("backward"):
                loss.backward()
            with record_function("optimizer"):
                if mine("optimizer"):
                    work(35)
                optimizer.step()
                optimizer.zero_grad()
            if mine("sometimes") and number % 3 == 0:
                with record_function("checkpoint"):
                    time.sleep(0.09)
        torch.cuda.synchronize()

    def measure(steps):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for number in range(steps):
            step(number)
        return (time.perf_counter() - begin) / steps * 1e3

    measure(10)
    draw, cases = random.Random(options.seed), []
    planned = [name for name in FAULTS for _ in range(options.rounds)]
    draw.shuffle(planned)
    for number, name in enumerate(planned):
        fault, culprit = "none", -1
        clean = measure(12)
        fault, culprit = name, draw.randrange(options.ranks)
        folder = os.path.join(options.folder, f"{number:03}-{name}")
        os.makedirs(folder, exist_ok=True)
        faulty = measure(12)
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        write = lambda profiler: profiler.export_chrome_trace(f"{folder}/rank{rank}.json.gz")
        with profile(activities=activities, schedule=schedule(**STEPS), on_trace_ready=write) as profiler:
            for index in range(STEPS["wait"] + STEPS["warmup"] + STEPS["active"] + 1):
                step(index)
                profiler.step()
        culprit_or_none = None if name == "none" else culprit
        cases.append(dict(case=f"{number:03}-{name}", fault=name, rank=culprit_or_none, step=faulty, without=clean))
    if rank == 0:
        with open(os.path.join(options.folder, "cases.json"), "w") as file:
            json.dump(cases, file, indent=1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    options = arguments()
    if "RANK" in os.environ:
        train(options)
    else:
        sys.exit(start(options))
