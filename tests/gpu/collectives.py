"""One of two ranks of PyTorch over NCCL: RANK, WORLD_SIZE and MASTER_PORT in the environment.

Checks each result. 100 rounds of each size, or as many as COLLECTIVE_SECONDS (20) allow; sizes are
those of COLLECTIVE_SIZES (bytes, with commas), or 4 KiB to 256 MiB.
"""
import os
import time

import torch
import torch.distributed as dist

ROUNDS, WARM_UP = 100, 3
SECONDS = float(os.environ.get("COLLECTIVE_SECONDS", "20"))
SIZES = [int(word) for word in os.environ.get(
    "COLLECTIVE_SIZES", "4096,65536,1048576,16777216,67108864,268435456").split(",")]

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(0)
dist.init_process_group(
    "nccl", init_method=f"tcp://127.0.0.1:{os.environ.get('MASTER_PORT', '29511')}",
    rank=rank, world_size=world)


def one_round(work, right):
    """How long it took, and whether the result is right."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return seconds, bool(torch.equal(result, right))


def agree(rounds):
    """What rank 0 says, for both."""
    said = torch.tensor([rounds], device="cuda", dtype=torch.int32)
    dist.broadcast(said, 0)
    return int(said.item())


def judge(name, size, work, right):
    """Runs `work` many times, with a look at the result each time, and says how fast it was."""
    first = [one_round(work, right) for _ in range(WARM_UP)]  # Connections are made meanwhile.
    each = min(seconds for seconds, _ in first)
    rounds = agree(max(5, min(ROUNDS, int(SECONDS / max(each, 1e-6)))))
    runs = [one_round(work, right) for _ in range(rounds)]
    good = all(fine for _, fine in first + runs)
    mean = sum(seconds for seconds, _ in runs) / rounds
    print(f"rank {rank}: {name} of {size} bytes, {rounds} rounds: right={good} "
          f"{mean * 1e6:.0f} us {size / mean / 1e9:.3f} GB/s", flush=True)
    assert good


def all_reduce(size):
    own = (torch.arange(size // 4, device="cuda", dtype=torch.int32) % 1000) * (rank + 1)
    whole = own // (rank + 1) * (world * (world + 1) // 2)

    def work():
        data = own.clone()
        dist.all_reduce(data)
        return data

    judge("all-reduce", size, work, whole)


def all_gather(size):
    """Of so many bytes together."""
    own = torch.arange(size // 4 // world, device="cuda", dtype=torch.int32) + rank
    whole = torch.cat([own - rank + i for i in range(world)])

    def work():
        out = torch.empty_like(whole)
        dist.all_gather_into_tensor(out, own)
        return out

    judge("all-gather", size, work, whole)


def send_receive(size):
    """From rank 0 to rank 1; the time is that of rank 1's answer of a few bytes too."""
    pattern = torch.arange(size // 4, device="cuda", dtype=torch.int32)
    answer = torch.zeros(1, device="cuda", dtype=torch.int32)

    def work():
        if rank == 0:
            dist.send(pattern, 1)
            dist.recv(answer, 1)
            return pattern
        data = torch.zeros_like(pattern)
        dist.recv(data, 0)
        dist.send(answer, 0)
        return data

    judge("send-recv", size, work, pattern)


for collective in (all_reduce, all_gather, send_receive):
    for size in SIZES:
        collective(size)
dist.destroy_process_group()
print(f"rank {rank}: all as it should be", flush=True)
