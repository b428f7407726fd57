"""Trainings that return memory to the driver in the step."""

import torch
import torch.nn.functional as F

from models import GPU, Gpt, adam, cnn, gpt_loss, text, update
from registry import case
from vision_models import Gan


@case("blocking-allocation", "transformer", "no empty_cache() in the loop", shapes=True)
def empty_cache_gpt(fault):
    model, batch = Gpt(4, 768, 12).to(GPU), text(8)
    optimizer = adam(model, fused=True)

    def step():
        update(optimizer, gpt_loss(model, batch))
        if fault:
            torch.cuda.empty_cache()

    return step


@case("blocking-allocation", "CNN", "no empty_cache() in the loop", shapes=False)
def empty_cache_cnn(fault):
    images, labels = torch.randn(64, 3, 160, 160, device=GPU), torch.randint(100, (64,), device=GPU)
    model = cnn(64, (2, 2))
    optimizer = adam(model, fused=True)

    def step():
        loss = F.cross_entropy(model(images), labels)
        if fault:
            torch.cuda.empty_cache()
        update(optimizer, loss)
        if fault:
            torch.cuda.empty_cache()

    return step


@case("blocking-allocation", "GAN", "no empty_cache() in the loop", shapes=False, rounds=7)
def empty_cache_gan(fault):
    gan = Gan(64)

    def step():
        fake = gan.discriminate()
        if fault:
            torch.cuda.empty_cache()
        gan.generate(fake)

    return step


@case("blocking-allocation", "BERT", "no empty_cache() between micro-batches", shapes=True, rounds=7)
def micro_batches_bert(fault):
    model = Gpt(3, 1024, 16, causal=False).to(GPU)
    optimizer, batches = adam(model, fused=True), [text(24, length - 1) for length in (256, 384)]

    def step():
        optimizer.zero_grad(set_to_none=True)
        for tokens in batches:
            hidden = torch.rand(tokens.shape, device=GPU) < 0.15
            logits = model(tokens.masked_fill(hidden, 0))
            wanted = tokens.masked_fill(~hidden, -100)
            loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten()) / len(batches)
            loss.backward()
            if fault:
                # Meant to avoid fragmentation, as the next batch has another length.
                del logits, loss
                torch.cuda.empty_cache()
        optimizer.step()

    return step
