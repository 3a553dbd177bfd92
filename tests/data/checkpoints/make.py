"""Writes the .pt files beside it, with the torch that is installed. Every value is a small integer or a quarter."""

import collections
import os
import sys

import torch

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))


def save(name, what, **options):
    torch.save(what, os.path.join(folder, name), **options)


def numbers(*shape, start=0, dtype=torch.float32):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) + start).reshape(shape).to(dtype)


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(3, 2)
        self.register_buffer("matrix", numbers(2, 2, start=100))
        with torch.no_grad():
            self.proj.weight.copy_(numbers(2, 3))
            self.proj.bias.copy_(numbers(2, start=10))


# What the reference's trainer saves: state dicts with _metadata, and an optimizer whose tensors look like weights.
part = Part()
optimizer = torch.optim.AdamW(part.parameters(), lr=0.0)
part.proj(torch.ones(1, 3)).sum().backward()
optimizer.step()
save(
    "finetune.pt",
    {
        "model": part.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "loss": {"core": None},
        "steps": {"train": 70000, "val": 2**40},
        "time_elapsed": 12.5,
        "best_meter_values": {"J": -1},
        "seed": 2**80,
    },
)

# No level above the tensors: parameters, views of one storage, scalars, an entry that is no tensor; protocol 4.
base = numbers(10)
save(
    "flat.pt",
    collections.OrderedDict(
        a=base[2:8].view(2, 3),
        b=base[4:],
        parameter=torch.nn.Parameter(numbers(1, 4, start=0.25)),
        double=numbers(2, start=1e10, dtype=torch.float64),
        scalar=torch.tensor(-7),
        empty=torch.empty(0, 5),
        version="1",
    ),
    pickle_protocol=4,
)

# Data-parallel and compiled, bfloat16 and float16; protocol 5.
save(
    "bf16.pt",
    {
        "state_dict": {
            "module._orig_mod.x": numbers(2, 2, start=-1, dtype=torch.bfloat16),
            "module._orig_mod.y": numbers(3, start=0.25, dtype=torch.float16),
        }
    },
    pickle_protocol=5,
)

# Refused, each with its own sentence.
save("transposed.pt", {"model": {"fine": numbers(2), "turned": numbers(2, 3).t()}})
save("complex.pt", {"model": {"wave": torch.ones(2, dtype=torch.complex64)}})
save("module.pt", {"model": torch.nn.Identity()})
save("other.pt", {"net": {"x": numbers(1)}, "epoch": 1})
save("legacy.pt", {"model": {"x": numbers(2)}}, _use_new_zipfile_serialization=False)
