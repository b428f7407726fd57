"""Trainings that launch more kernels than the host has time for."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from models import GPU, Gpt, adam, cnn, gpt_loss, mlp, text, update
from registry import case
from vision_models import UNet, denoising_loss, mobilenet


def graphed(step, fault):
    """Captures a step as a CUDA graph, unless it is the fault not to."""
    if fault:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    # The graph does not keep the tensors of the model alive, but the step does.
    return lambda _tensors=step: graph.replay()


@case("launch-bound", "MLP", "CUDA graph of the step", shapes=True)
def graph_mlp(fault):
    model, batch = mlp(12, 256), torch.randn(128, 256, device=GPU)
    optimizer = adam(model, capturable=True)
    return graphed(lambda: update(optimizer, F.mse_loss(model(batch), batch)), fault)


@case("launch-bound", "transformer", "CUDA graph of the step", shapes=False)
def graph_gpt(fault):
    model, batch = Gpt(5, 256, 4, vocab=512, length=128).to(GPU), text(8, 128, 512)
    optimizer = adam(model, capturable=True, foreach=True)
    return graphed(lambda: update(optimizer, gpt_loss(model, batch)), fault)


@case("tensor-by-tensor", "transformer", "AdamW(fused=True)", shapes=True)
def adam_loop_gpt(fault):
    model, batch = Gpt(4, 512, 8).to(GPU), text(8)
    optimizer = adam(model, foreach=False) if fault else adam(model, fused=True)
    return lambda: update(optimizer, gpt_loss(model, batch))


@case("tensor-by-tensor", "CNN", "clip_grad_norm_ and a fused optimizer", shapes=False)
def clip_by_hand_cnn(fault):
    images, labels = torch.randn(64, 3, 160, 160, device=GPU), torch.randint(100, (64,), device=GPU)
    model = cnn(64, (2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=not fault)

    def step():
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if fault:
            for parameter in model.parameters():
                norm = (parameter.grad * parameter.grad).sum().sqrt()
                parameter.grad.mul_(torch.clamp(0.1 / (norm + 1e-6), max=1.0))
                parameter.grad.add_(parameter.detach(), alpha=1e-4)
                parameter.grad.clamp_(-1.0, 1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    return step


class UnrolledLstm(nn.Module):
    """An LSTM that computes one cell after the other."""

    def __init__(self, dim):
        super().__init__()
        self.dim, self.x, self.h = dim, nn.Linear(dim, 4 * dim), nn.Linear(dim, 4 * dim, bias=False)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        h = c = x.new_zeros(len(x), self.dim)
        hidden = []
        for gates in self.x(x).unbind(1):
            take, forget, new, give = (gates + self.h(h)).chunk(4, 1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(take) * torch.tanh(new)
            h = torch.sigmoid(give) * torch.tanh(c)
            hidden.append(h)
        return self.out(torch.stack(hidden, 1))


@case("launch-bound", "LSTM", "CUDA graph of the step", shapes=True, rounds=7)
def graph_lstm(fault):
    model, series = UnrolledLstm(256).to(GPU), torch.randn(64, 41, 256, device=GPU)
    optimizer = adam(model, fused=True, capturable=True)
    return graphed(lambda: update(optimizer, F.mse_loss(model(series[:, :-1]), series[:, 1:])), fault)


@case("launch-bound", "MobileNet", "CUDA graph of the step", shapes=False, rounds=7)
def graph_mobilenet(fault):
    images, labels = torch.randn(16, 3, 128, 128, device=GPU), torch.randint(100, (16,), device=GPU)
    model = mobilenet()
    optimizer = adam(model, fused=True, capturable=True)
    return graphed(lambda: update(optimizer, F.cross_entropy(model(images), labels)), fault)


@case("tensor-by-tensor", "diffusion U-Net", "torch._foreach_lerp_", shapes=True, rounds=7)
def ema_denoiser(fault):
    images, model = torch.randn(16, 3, 32, 32, device=GPU), UNet(3, 3, 32, levels=3, depth=4).to(GPU)
    optimizer, weights = adam(model, fused=True), [weight.detach() for weight in model.parameters()]
    means = [weight.clone() for weight in weights]

    def step():
        update(optimizer, denoising_loss(model, images))
        if fault:
            for mean, weight in zip(means, weights):
                mean.mul_(0.999).add_(weight, alpha=0.001)
        else:
            torch._foreach_lerp_(means, weights, 0.001)

    return step
