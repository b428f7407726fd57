"""Trainings whose host waits for the GPU, or lets the GPU wait."""

import time

import torch
import torch.nn.functional as F

from models import GPU, Gpt, adam, cnn, gpt_loss, text, update
from registry import case


@case("host-sync", "transformer", "log every 50 steps", shapes=True)
def item_gpt(fault):
    model, batch, log = Gpt(6, 640, 10).to(GPU), text(16), []
    optimizer = adam(model, fused=True)

    def step():
        each = (lambda x: log.append(x.norm().item())) if fault else None
        loss = gpt_loss(model, batch, each=each)
        update(optimizer, loss)
        if fault:
            log[:] = [loss.item()]

    return step


@case("host-sync", "CNN", "no synchronize() for timers", shapes=False)
def timers_cnn(fault):
    images, labels, model = torch.randn(96, 3, 160, 160, device=GPU), torch.randint(100, (96,), device=GPU), cnn(64)
    optimizer, times = adam(model, fused=True), []

    def lap():
        if fault:
            torch.cuda.synchronize()
            times[:] = [time.perf_counter()]

    def step():
        lap()
        loss = F.cross_entropy(model(images), labels)
        lap()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        lap()
        optimizer.step()
        lap()

    return step
