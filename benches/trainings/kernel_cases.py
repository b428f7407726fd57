"""Trainings whose kernels are slower, or more, than they need to be."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from models import GPU, Gpt, adam, gpt_loss, mlp, text, update
from registry import case


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
