"""Trainings that copy to the GPU from the wrong memory, or what is there already."""

import itertools

import numpy as np
import torch
import torch.nn.functional as F
from torch.profiler import record_function

from models import GPU, adam, update
from registry import case
from science_models import Nerf, VNet


@case("pageable-copy", "V-Net", "pin_memory before non_blocking", shapes=True, rounds=7)
def unpinned_volumes_vnet(fault):
    batch, side, random = 8, 80, np.random.default_rng(0)

    def load():
        """Returns scans of four kinds with the tissue of each place, as they are in numpy's files."""
        scans = random.standard_normal((batch, 4, side, side, side), dtype=np.float32)
        tissue = random.integers(0, 4, (batch, side, side, side), dtype=np.uint8)
        pair = torch.from_numpy(scans), torch.from_numpy(tissue)
        return pair if fault else [tensor.pin_memory() for tensor in pair]

    batches, model = itertools.cycle([load() for _ in range(3)]), VNet().to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        scans, tissue = (tensor.to(GPU, non_blocking=True) for tensor in next(batches))
        update(optimizer, F.cross_entropy(model(scans), tissue.long()))

    return step


@case("same-bytes-again", "NeRF", "keep the pixels of all images on the GPU", shapes=False, rounds=7)
def all_pixels_nerf(fault):
    images, side, rays = 100, 200, 4096
    # The colour of each pixel of each image, which rays are compared with.
    pixels, turn = torch.rand(images * side * side, 3), itertools.count()
    numbers = [torch.randint(len(pixels), (rays,)).pin_memory() for _ in range(8)]
    origins, directions = (F.normalize(torch.randn(rays, 3, device=GPU), dim=1) for _ in range(2))
    cast, model, kept = torch.cat([4 * origins, directions], 1), Nerf().to(GPU), pixels.to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        with record_function("next_batch"):
            chosen = numbers[next(turn) % 8].to(GPU, non_blocking=True)
        with record_function("all_pixels"):
            colours = pixels.to(GPU) if fault else kept
        update(optimizer, F.mse_loss(model(cast), colours[chosen]))

    return step
