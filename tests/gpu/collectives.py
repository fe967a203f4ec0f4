"""One of two ranks of PyTorch over NCCL: RANK and WORLD_SIZE in the environment. Checks results."""
import os
import time

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(0)
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=world)


def judge(name, count, work, right, rounds):
    """Runs `work` so many times, with a look at the result each time, and says how fast it was."""
    good = True
    seconds = 0.0
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.time()
        result = work()
        torch.cuda.synchronize()
        seconds += time.time() - start
        good = good and bool(torch.equal(result, right))
    rate = 4 * count * rounds / seconds / 1e9
    print(f"rank {rank}: {name} of {4 * count} bytes, {rounds} rounds: right={good} "
          f"{rate:.3f} GB/s", flush=True)
    assert good


def all_reduce(count, rounds):
    own = (torch.arange(count, device="cuda", dtype=torch.int32) % 1000) * (rank + 1)
    whole = own // (rank + 1) * (world * (world + 1) // 2)

    def work():
        data = own.clone()
        dist.all_reduce(data)
        return data

    judge("all-reduce", count, work, whole, rounds)


def all_gather(count):
    own = torch.full((count,), rank + 7, device="cuda", dtype=torch.int32)
    whole = torch.cat([torch.full_like(own, i + 7) for i in range(world)])

    def work():
        out = torch.empty_like(whole)
        dist.all_gather_into_tensor(out, own)
        return out

    judge("all-gather", count, work, whole, 10)


def send_receive(count):
    pattern = torch.arange(count, device="cuda", dtype=torch.int32)

    def work():
        data = pattern.clone() if rank == 0 else torch.zeros_like(pattern)
        if rank == 0:
            dist.send(data, 1)
        else:
            dist.recv(data, 0)
        return data

    judge("send-recv", count, work, pattern, 10)


for size in (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 24, 1 << 26):
    all_reduce(size, 100)
all_gather(1 << 20)
send_receive(1 << 20)
dist.destroy_process_group()
