"""Trainings that copy too much between host and GPU, too slowly, or too often."""

import itertools

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

from models import GPU, ActorCritic, Gpt, Recommender, Vae, adam, cnn, gpt_loss, mlp, text, update
from more_models import VideoTransformer, tabular_mlp
from registry import case
from vision_models import Gan, MaskedAutoencoder, autoencoder


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


@case("pageable-copy", "autoencoder", "pin_memory and non_blocking", shapes=True, rounds=7)
def pageable_autoencoder(fault):
    images = [torch.randn(128, 3, 224, 224) for _ in range(3)]
    images = images if fault else [batch.pin_memory() for batch in images]
    model, turn = autoencoder(64), itertools.count()
    optimizer = adam(model, fused=True)

    def step():
        batch = images[next(turn) % 3].to(GPU, non_blocking=not fault)
        update(optimizer, F.mse_loss(model(batch), batch))

    return step


@case("exposed-copy", "recommender", "copy the next batch on a second stream", shapes=False, rounds=7)
def serial_copy_recommender(fault):
    rows, fields = 32768, 31
    batches = [(torch.randn(rows, 1024), torch.randint(20_000, (rows, fields)), torch.rand(rows)) for _ in range(3)]
    batches = [[tensor.pin_memory() for tensor in batch] for batch in batches]
    model, turn, copies = Recommender(1024, fields).to(GPU), itertools.count(), torch.cuda.Stream()
    optimizer = adam(model, fused=True)

    def upload():
        return [tensor.to(GPU, non_blocking=True) for tensor in batches[next(turn) % 3]]

    def prefetched():
        """Yields batches that were copied on a stream of their own while the one before was computed."""
        following = None
        while True:
            torch.cuda.current_stream().wait_stream(copies)
            batch = following
            with torch.cuda.stream(copies):
                following = upload()
            if batch:
                for tensor in batch:
                    tensor.record_stream(torch.cuda.current_stream())
                yield batch

    ahead = prefetched()

    def step():
        dense, categories, clicks = upload() if fault else next(ahead)
        update(optimizer, F.binary_cross_entropy_with_logits(model(dense, categories), clicks))

    return step


@case("same-bytes-again", "transformer", "keep the mask on the GPU", shapes=True, rounds=7)
def mask_gpt(fault):
    length, turn = 2048, itertools.count()
    batches = [text(4, length, device="cpu").pin_memory() for _ in range(8)]
    model = Gpt(4, 512, 8, length=length).to(GPU)
    optimizer = adam(model, fused=True)

    def causal_mask():
        return torch.full((length, length), float("-inf")).triu(1)

    kept = causal_mask().to(GPU)

    def step():
        with record_function("next_batch"):
            batch = batches[next(turn) % 8].to(GPU, non_blocking=True)
        with record_function("causal_mask"):
            mask = causal_mask().to(GPU) if fault else kept
        update(optimizer, gpt_loss(model, batch, mask=mask))

    return step


@case("large-readback", "GAN", "mean and deviation on the GPU", shapes=False, rounds=7)
def samples_gan(fault):
    gan, seen = Gan(96), []

    def step():
        fake = gan.discriminate()
        gan.generate(fake)
        with record_function("sample_statistics"):
            samples = fake.detach().cpu() if fault else fake.detach()
            seen[:] = [samples.mean((1, 2, 3)), samples.std((1, 2, 3))]

    return step


@case("tiny-copies", "detector", "one tensor of each kind of target", shapes=True, rounds=7)
def targets_detector(fault):
    images, model = torch.randn(64, 3, 128, 128, device=GPU), cnn(32, (2, 2), 64)
    boxes, labels = nn.Linear(64, 4).to(GPU), nn.Linear(64, 20).to(GPU)
    optimizer, turn = adam(nn.ModuleList([model, boxes, labels]), fused=True), itertools.count()

    def targets(image):
        """The objects of an image, as a dataset has them."""
        count = 3 + image % 5
        tensors = torch.rand(count, 4), torch.randint(20, (count,)), torch.full((count,), image)
        return dict(zip(("boxes", "labels", "image"), tensors))

    def collate(images):
        """Pins the targets, as a loader's workers do: all images together, or as the fault one by one."""
        if not fault:
            images = [{key: torch.cat([image[key] for image in images]) for key in images[0]}]
        return [{key: tensor.pin_memory() for key, tensor in image.items()} for image in images]

    batches = [collate([targets(image) for image in range(64)]) for _ in range(4)]

    def step():
        batch = batches[next(turn) % 4]
        batch = [{key: tensor.to(GPU, non_blocking=True) for key, tensor in image.items()} for image in batch]
        wanted = {key: torch.cat([image[key] for image in batch]) for key in batch[0]}
        objects = model(images).index_select(0, wanted["image"])
        loss = F.l1_loss(boxes(objects), wanted["boxes"]) + F.cross_entropy(labels(objects), wanted["labels"])
        update(optimizer, loss)

    return step


@case("pageable-copy", "distilled encoder", "pin_memory", shapes=False, rounds=7)
def teacher_states_encoder(fault):
    def states():
        """The states of four layers of the teacher, which were computed before the training."""
        layers = [torch.randn(48, 256, 1024, dtype=torch.float16, device=GPU).cpu() for _ in range(4)]
        return layers if fault else [layer.pin_memory() for layer in layers]

    batches, turn = [(text(48, 255), states()) for _ in range(3)], itertools.count()
    model = Gpt(6, 512, 8, length=256, causal=False).to(GPU)
    widen = nn.ModuleList(nn.Linear(512, 1024) for _ in range(4)).to(GPU)
    optimizer = adam(nn.ModuleList([model, widen]), fused=True)

    def step():
        tokens, teacher = batches[next(turn) % 3]
        teacher, student = [layer.to(GPU, non_blocking=True) for layer in teacher], []
        logits = model(tokens, each=student.append)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        for layer, own, wanted in zip(widen, student[2:], teacher):
            loss = loss + F.mse_loss(layer(own), wanted.float())
        update(optimizer, loss)

    return step


@case("exposed-copy", "masked autoencoder", "copy to a second buffer on a second stream", shapes=True, rounds=7)
def one_stream_mae(fault):
    shape = 256, 3, 224, 224
    batches = itertools.cycle([torch.rand(shape, device=GPU).cpu().pin_memory() for _ in range(3)])
    model = MaskedAutoencoder(3, 384, 6).to(GPU)
    optimizer = adam(model, fused=True)
    if fault:
        return lambda: update(optimizer, model(next(batches).to(GPU, non_blocking=True)))

    copies, turn, buffers = torch.cuda.Stream(), itertools.count(), [torch.empty(shape, device=GPU) for _ in range(2)]
    filled, used = ([torch.cuda.Event() for _ in range(2)] for _ in range(2))

    def fill(slot):
        with torch.cuda.stream(copies):
            copies.wait_event(used[slot])
            buffers[slot].copy_(next(batches), non_blocking=True)
            filled[slot].record(copies)

    def step():
        slot, current = next(turn) % 2, torch.cuda.current_stream()
        current.wait_event(filled[slot])
        update(optimizer, model(buffers[slot]))
        used[slot].record(current)
        fill(slot)

    for slot in range(2):
        used[slot].record()
        fill(slot)
    return step


@case("large-readback", "VAE", "keep the moving averages on the GPU", shapes=False, rounds=7)
def host_averages_vae(fault):
    images, model = torch.rand(32768, 3072, device=GPU), Vae().to(GPU)
    optimizer, weights = adam(model, fused=True), [weight.detach() for weight in model.parameters()]
    averages = [weight.cpu() if fault else weight.clone() for weight in weights]

    def step():
        update(optimizer, model(images))
        if fault:
            for average, weight in zip(averages, weights):
                average.lerp_(weight.cpu(), 0.001)
        else:
            torch._foreach_lerp_(averages, weights, 0.001)

    return step


@case("tiny-copies", "actor-critic", "np.stack before the copy", shapes=True, rounds=7)
def states_ppo(fault):
    environments, random = 384, np.random.default_rng(0)
    rollouts = [[random.standard_normal(376, dtype=np.float32) for _ in range(environments)] for _ in range(8)]
    shapes = (environments, 17), (environments,), (environments,), (environments,)
    known, model, turn = [torch.randn(shape, device=GPU) for shape in shapes], ActorCritic().to(GPU), itertools.count()
    optimizer = adam(model, fused=True)

    def upload(states):
        if fault:
            return torch.stack([torch.from_numpy(state).to(GPU, non_blocking=True) for state in states])
        return torch.from_numpy(np.stack(states)).pin_memory().to(GPU, non_blocking=True)

    def step():
        states = upload(rollouts[next(turn) % 8])
        for _ in range(4):
            update(optimizer, model(states, *known))

    return step


class Videos(Dataset):
    """Decoded clips of 8 frames."""

    def __init__(self, count=48):
        self.clips = torch.rand(count, 3, 8, 112, 112)

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return self.clips[index % len(self.clips)], index % 100


@case("pageable-copy", "video transformer", "DataLoader(pin_memory=True) and non_blocking", shapes=False, rounds=7)
def unpinned_loader_video(fault):
    loader = DataLoader(Videos(), 16, num_workers=4, pin_memory=not fault, persistent_workers=True)
    batches, model = iter(loader), VideoTransformer(8, 768, 12, 8, 112).to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        clips, labels = (tensor.to(GPU, non_blocking=not fault) for tensor in next(batches))
        update(optimizer, F.cross_entropy(model(clips), labels))

    return step


@case("large-readback", "autoencoder", "copy to pinned memory without waiting", shapes=True, rounds=7)
def latents_autoencoder(fault):
    images, model, turn = torch.rand(64, 3, 224, 224, device=GPU), autoencoder(64), itertools.count()
    encoder, decoder, optimizer = model[:4], model[4:], adam(model, fused=True)
    # The latents of the last steps, from which another model learns.
    stored = [torch.empty(64, 128, 28, 28).pin_memory() for _ in range(4)]
    copied = [torch.cuda.Event() for _ in stored]

    def step():
        latents, slot = encoder(images), next(turn) % len(stored)
        if fault:
            stored[slot] = latents.detach().cpu()
        else:
            copied[slot].synchronize()
            stored[slot].copy_(latents.detach(), non_blocking=True)
            copied[slot].record()
        update(optimizer, F.mse_loss(decoder(latents), images))

    return step


@case("tiny-copies", "tabular MLP", "one tensor of all columns", shapes=False, rounds=7)
def columns_tabular(fault):
    names, rows, turn = [f"column {at}" for at in range(320)], 2048, itertools.count()
    batches, labels = [torch.randn(len(names), rows) for _ in range(4)], torch.rand(rows, device=GPU)
    if fault:
        batches = [{name: column.clone().pin_memory() for name, column in zip(names, batch)} for batch in batches]
    else:
        batches = [batch.pin_memory() for batch in batches]
    model = tabular_mlp(len(names), 20, 512)
    optimizer = adam(model, fused=True)

    def step():
        batch = batches[next(turn) % 4]
        if fault:
            batch = {name: column.to(GPU, non_blocking=True) for name, column in batch.items()}
            batch = torch.stack([batch[name] for name in names])
        else:
            batch = batch.to(GPU, non_blocking=True)
        update(optimizer, F.binary_cross_entropy_with_logits(model(batch.T), labels))

    return step
