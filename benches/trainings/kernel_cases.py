"""Trainings whose kernels are slower, or more, than they need to be."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from models import GPU, Gpt, SequentialRecommender, adam, gpt_loss, mlp, text, update
from more_models import QuantisedAutoencoder
from registry import case
from science_models import CrossNetwork, DecisionTransformer
from vision_models import UNet, darknet, denoising_loss


@case("no-tensor-cores", "transformer", "set_float32_matmul_precision('high')", shapes=True)
def f32_gpt(fault):
    model, batch = Gpt(4, 1024, 16).to(GPU), text(16)
    optimizer = adam(model, fused=True)

    def step():
        torch.set_float32_matmul_precision("highest" if fault else "high")
        update(optimizer, gpt_loss(model, batch))

    return step


@case("no-tensor-cores", "MLP", "set_float32_matmul_precision('high')", shapes=False)
def f32_mlp(fault):
    model, batch = mlp(4, 2048, nn.ReLU), torch.randn(4096, 2048, device=GPU)
    optimizer = adam(model)

    def step():
        torch.set_float32_matmul_precision("highest" if fault else "high")
        loss = F.mse_loss(model(batch), batch)
        update(optimizer, loss)
        return loss.item()

    return step


class HandGelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


class TanhGelu(nn.Module):
    def forward(self, x):
        return F.gelu(x, approximate="tanh")


@case("unfused-chain", "MLP", "F.gelu(approximate='tanh')", shapes=True)
def gelu_by_hand_mlp(fault):
    model, batch = mlp(4, 3072, HandGelu if fault else TanhGelu), torch.randn(8192, 3072, device=GPU)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, F.mse_loss(model(batch), batch))


class HandNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias


@case("unfused-chain", "transformer", "F.layer_norm", shapes=False)
def norm_by_hand_gpt(fault):
    model, batch = Gpt(4, 1024, 16, norm=HandNorm if fault else nn.LayerNorm).to(GPU), text(24)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, gpt_loss(model, batch))


@case("no-tensor-cores", "diffusion U-Net", "torch.backends.cudnn.allow_tf32 = True", shapes=True, rounds=7)
def f32_denoiser(fault):
    images, model = torch.randn(32, 3, 64, 64, device=GPU), UNet(3, 3, 64).to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        torch.backends.cudnn.allow_tf32 = not fault
        update(optimizer, denoising_loss(model, images))

    return step


class HandRmsNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class RmsNorm(HandRmsNorm):
    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


@case("unfused-chain", "transformer", "F.rms_norm", shapes=False, rounds=7)
def rms_norm_by_hand_gpt(fault):
    model, batch = Gpt(6, 512, 8, norm=HandRmsNorm if fault else RmsNorm).to(GPU), text(48)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, gpt_loss(model, batch))


class Gated(nn.Module):
    """A residual MLP with a SiLU gate, which is written out if `by_hand`."""

    def __init__(self, dim, inner, by_hand):
        super().__init__()
        self.norm, self.gate, self.up = nn.LayerNorm(dim), nn.Linear(dim, inner), nn.Linear(dim, inner)
        self.down, self.by_hand = nn.Linear(inner, dim), by_hand

    def forward(self, x):
        y = self.norm(x)
        gate, up = self.gate(y), self.up(y)
        gate = gate * (1.0 / (1.0 + torch.exp(-gate))) if self.by_hand else F.silu(gate)
        return x + self.down(gate * up)


@case("unfused-chain", "gated MLP", "F.silu", shapes=True, rounds=7)
def silu_by_hand_mlp(fault):
    model = nn.Sequential(*(Gated(512, 2048, fault) for _ in range(6))).to(GPU)
    batch = torch.randn(16384, 512, device=GPU)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, F.mse_loss(model(batch), batch))


@case("no-tensor-cores", "sequential recommender", "autocast around the last product, too", shapes=False, rounds=7)
def f32_scores_recommender(fault):
    items, length = 16384, 256
    model, batch = SequentialRecommender(4, 768, 12, items, length).to(GPU), text(32, length, items)
    optimizer = adam(model, fused=True)

    def step():
        # PyTorch's default, with which matrices of f32 do not use tensor cores.
        torch.set_float32_matmul_precision("highest")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            states = model(batch[:, :-1])
            with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not fault):
                scores = F.linear(states.float() if fault else states, model.items.weight)
            loss = F.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        update(optimizer, loss)

    return step


class HandMish(nn.Module):
    def forward(self, x):
        return x * torch.tanh(torch.log(1 + torch.exp(x)))


@case("unfused-chain", "Darknet", "F.mish", shapes=True, rounds=7)
def mish_by_hand_darknet(fault):
    images = torch.randn(48, 3, 192, 192, device=GPU).contiguous(memory_format=torch.channels_last)
    model, labels = darknet(HandMish if fault else nn.Mish), torch.randint(100, (48,), device=GPU)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, F.cross_entropy(model(images), labels))


@case("no-tensor-cores", "VQ-VAE", "set_float32_matmul_precision('high')", shapes=False, rounds=7)
def f32_codes_vqvae(fault):
    images = torch.rand(32, 3, 128, 128, device=GPU).contiguous(memory_format=torch.channels_last)
    model = QuantisedAutoencoder().to(GPU, memory_format=torch.channels_last)
    optimizer = adam(model, fused=True)

    def step():
        torch.set_float32_matmul_precision("highest" if fault else "high")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(images)
        update(optimizer, loss)

    return step


def smoothed_by_hand(logits, wanted, smoothing=0.1):
    """Returns the cross-entropy with smoothed labels."""
    powers = (logits - logits.amax(-1, keepdim=True).detach()).exp()
    logs = (powers / powers.sum(-1, keepdim=True) + 1e-9).log()
    hits = logs.gather(-1, wanted[:, None]).squeeze(1)
    return -((1 - smoothing) * hits + smoothing * logs.mean(-1)).mean()


@case("unfused-chain", "transformer", "F.cross_entropy(label_smoothing=0.1)", shapes=True, rounds=7)
def smoothing_by_hand_gpt(fault):
    model, batch = Gpt(4, 512, 8, vocab=16384).to(GPU), text(16, vocab=16384)
    optimizer = adam(model, fused=True)

    def step():
        logits, wanted = model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()
        if fault:
            loss = smoothed_by_hand(logits, wanted)
        else:
            loss = F.cross_entropy(logits, wanted, label_smoothing=0.1)
        update(optimizer, loss)

    return step


@case("no-tensor-cores", "cross network", "autocast around the forward pass", shapes=True, rounds=7)
def f32_cross_network(fault):
    rows, fields = 8192, 26
    categories, clicks = torch.randint(50_000, (rows, fields), device=GPU), torch.rand(rows, device=GPU).round()
    model = CrossNetwork(2048, 4, fields).to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        # PyTorch's default, with which matrices of f32 do not use tensor cores.
        torch.set_float32_matmul_precision("highest")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not fault):
            logits = model(categories)
        update(optimizer, F.binary_cross_entropy_with_logits(logits.float(), clicks))

    return step


@case("unfused-chain", "decision transformer", "F.scaled_dot_product_attention", shapes=False, rounds=7)
def attention_by_hand_decisions(fault):
    batch, moves, states, actions = 32, 256, 64, 16
    shapes = (batch, moves, 1), (batch, moves, states), (batch, moves, actions)
    history = [torch.randn(shape, device=GPU) for shape in shapes]
    model = DecisionTransformer(6, 512, 8, moves, states, actions, by_hand=fault).to(GPU)
    optimizer = adam(model, fused=True)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            predicted = model(*history)
        update(optimizer, F.mse_loss(predicted.float(), history[2]))

    return step
