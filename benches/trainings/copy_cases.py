"""Trainings that copy too much between host and GPU, too slowly, or too often."""

import itertools

import torch
import torch.nn.functional as F

from models import GPU, Gpt, adam, cnn, gpt_loss, mlp, text, update
from registry import case


@case("pageable-copy", "CNN", "pin_memory and non_blocking", shapes=True)
def pageable_cnn(fault):
    images = [torch.randn(128, 3, 192, 192) for _ in range(4)]
    images = images if fault else [image.pin_memory() for image in images]
    labels, model, turn = torch.randint(100, (128,), device=GPU), cnn(48, (2, 2)), itertools.count()
    optimizer = adam(model, fused=True)

    def step():
        batch = images[next(turn) % 4].to(GPU, non_blocking=not fault)
        update(optimizer, F.cross_entropy(model(batch), labels))

    return step


@case("pageable-copy", "MLP", "pin_memory and non_blocking", shapes=False)
def pageable_mlp(fault):
    rows = [torch.randn(8192, 2048) for _ in range(6)]
    rows = rows if fault else [batch.pin_memory() for batch in rows]
    model, turn = mlp(4, 2048), itertools.count()
    optimizer = adam(model, fused=True)

    def step():
        batch = rows[next(turn) % 6].to(GPU, non_blocking=not fault)
        loss = F.mse_loss(model(batch), batch)
        update(optimizer, loss)
        return loss.item()

    return step


@case("exposed-copy", "MLP", "copy the next batch on a second stream", shapes=True)
def serial_copy_mlp(fault):
    rows = [torch.randn(16384, 2048).pin_memory() for _ in range(4)]
    model, turn, side = mlp(5, 2048), itertools.count(), torch.cuda.Stream()
    optimizer, ready = adam(model, fused=True), []

    def fetch():
        with torch.cuda.stream(side):
            ready.append(rows[next(turn) % 4].to(GPU, non_blocking=True))

    def step():
        if fault:
            batch = rows[next(turn) % 4].to(GPU, non_blocking=True)
        else:
            if not ready:
                fetch()
            torch.cuda.current_stream().wait_stream(side)
            batch = ready.pop()
            batch.record_stream(torch.cuda.current_stream())
            fetch()
        update(optimizer, F.mse_loss(model(batch), batch))

    return step


@case("same-bytes-again", "transformer", "keep the table on the GPU", shapes=False)
def table_gpt(fault):
    table = torch.randn(32768, 1024)
    on_gpu, model, batch = table.to(GPU), Gpt(3, 1024, 16).to(GPU), text(8)
    optimizer, places = adam(model, fused=True), torch.randint(32768, (4096,), device=GPU)

    def step():
        features = (table.to(GPU) if fault else on_gpu)[places]
        loss = gpt_loss(model, batch) + (features.mean(0) * model.places.weight[0]).sum()
        update(optimizer, loss)

    return step


@case("large-readback", "transformer", "argmax on the GPU", shapes=True)
def logits_gpt(fault):
    model, batch, seen = Gpt(3, 768, 12).to(GPU), text(8), []
    optimizer = adam(model, fused=True)

    def step():
        logits = model(batch[:, :-1])
        update(optimizer, F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()))
        seen[:] = [logits.detach().cpu() if fault else logits.detach().argmax(-1)]

    return step


@case("tiny-copies", "CNN", "one tensor of all weights", shapes=False)
def weights_cnn(fault):
    images, labels, model = torch.randn(96, 3, 128, 128, device=GPU), torch.randint(100, (96,), device=GPU), cnn(64)
    optimizer, values = adam(model, fused=True), [0.5 + index / 96 for index in range(96)]

    def step():
        if fault:
            weights = torch.stack([torch.tensor(value, device=GPU) for value in values])
        else:
            weights = torch.tensor(values).pin_memory().to(GPU, non_blocking=True)
        update(optimizer, (F.cross_entropy(model(images), labels, reduction="none") * weights).mean())

    return step
