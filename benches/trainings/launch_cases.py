"""Trainings that launch more kernels than the host has time for."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from models import GPU, Gpt, adam, cnn, gpt_loss, mlp, temporal_cnn, text, update
from more_models import Flow
from registry import case
from science_models import MoeBlock, convnext
from vision_models import Mixer, UNet, Vit, denoising_loss, mobilenet


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


@case("launch-bound", "physics-informed MLP", "CUDA graph of the step", shapes=False, rounds=7)
def graph_pinn(fault):
    points, start = torch.rand(4096, 2, device=GPU), torch.rand(512, 2, device=GPU)
    start[:, 1] = 0
    wanted = torch.sin(2 * math.pi * start[:, :1])
    hidden = [part for _ in range(9) for part in (nn.Linear(128, 128), nn.Tanh())]
    model = nn.Sequential(nn.Linear(2, 128), nn.Tanh(), *hidden, nn.Linear(128, 1)).to(GPU)
    optimizer = adam(model, fused=True, capturable=True)

    def step():
        # Burgers' equation, whose residual has derivatives of the model by place and time.
        at = points.detach().requires_grad_()
        u = model(at)
        (slope,) = torch.autograd.grad(u.sum(), at, create_graph=True)
        (curve,) = torch.autograd.grad(slope[:, 0].sum(), at, create_graph=True)
        residual = slope[:, 1] + u[:, 0] * slope[:, 0] - 0.003 * curve[:, 0]
        update(optimizer, residual.square().mean() + F.mse_loss(model(start), wanted))

    return graphed(step, fault)


class Heads(nn.Module):
    """The heads of all tasks, as one batch of matrices."""

    def __init__(self, tasks, dim, classes):
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(tasks, dim, dim) / 16), nn.Parameter(torch.zeros(tasks, 1, dim))
        self.w2 = nn.Parameter(torch.randn(tasks, dim, classes) / 16)
        self.b2 = nn.Parameter(torch.zeros(tasks, 1, classes))

    def forward(self, x):
        x = torch.baddbmm(self.b1, x.expand(len(self.w1), -1, -1), self.w1).relu()
        return torch.baddbmm(self.b2, x, self.w2)


@case("launch-bound", "temporal CNN", "one batched product for all heads", shapes=True, rounds=7)
def heads_temporal_cnn(fault):
    tasks, dim, classes = 24, 128, 5
    signals, labels = torch.randn(64, 12, 1000, device=GPU), torch.randint(classes, (tasks, 64), device=GPU)
    trunk = temporal_cnn(12, dim, 10)
    if fault:
        heads = (nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, classes)) for _ in range(tasks))
        heads = nn.ModuleList(heads).to(GPU)
    else:
        heads = Heads(tasks, dim, classes).to(GPU)
    optimizer = adam(nn.ModuleList([trunk, heads]), fused=True)

    def step():
        features = trunk(signals)
        if fault:
            losses = [F.cross_entropy(head(features), wanted) for head, wanted in zip(heads, labels)]
            loss = sum(losses) / tasks
        else:
            loss = F.cross_entropy(heads(features).flatten(0, 1), labels.flatten())
        update(optimizer, loss)

    return step


class Lion(torch.optim.Optimizer):
    """The optimizer Lion, which updates one tensor after the other unless `foreach`."""

    def __init__(self, parameters, foreach, lr=1e-4, decay=0.01):
        super().__init__(parameters, {"lr": lr, "decay": decay})
        self.foreach = foreach

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            weights, lr, kept = group["params"], group["lr"], 1 - group["lr"] * group["decay"]
            for weight in weights:
                if "mean" not in self.state[weight]:
                    self.state[weight]["mean"] = torch.zeros_like(weight)
            grads, means = [weight.grad for weight in weights], [self.state[weight]["mean"] for weight in weights]
            if self.foreach:
                changes = torch._foreach_lerp(means, grads, 0.1)
                torch._foreach_sign_(changes)
                torch._foreach_mul_(weights, kept)
                torch._foreach_add_(weights, changes, alpha=-lr)
                torch._foreach_lerp_(means, grads, 0.01)
                continue
            for weight, grad, mean in zip(weights, grads, means):
                change = mean.lerp(grad, 0.1).sign_()
                weight.mul_(kept).add_(change, alpha=-lr)
                mean.lerp_(grad, 0.01)


@case("tensor-by-tensor", "MLP-Mixer", "torch._foreach_lerp_ and the like in the optimizer", shapes=False, rounds=7)
def lion_mixer(fault):
    images, labels = torch.randn(64, 3, 128, 128, device=GPU), torch.randint(100, (64,), device=GPU)
    model = Mixer(12, 384).to(GPU)
    optimizer = Lion(model.parameters(), foreach=not fault)
    return lambda: update(optimizer, F.cross_entropy(model(images), labels))


@case("launch-bound", "normalizing flow", "CUDA graph of the step", shapes=False, rounds=7)
def graph_flow(fault):
    model, batch = Flow(32, 64, 256).to(GPU), torch.randn(1024, 64, device=GPU)
    optimizer = adam(model, fused=True, capturable=True)
    return graphed(lambda: update(optimizer, model(batch)), fault)


@torch.no_grad()
def climb(weights, foreach, radius=0.5):
    """Moves the weights to where the loss is higher, as adaptive sharpness-aware minimization does, and returns by how
    much."""
    grads = [weight.grad for weight in weights]
    if foreach:
        sizes = torch._foreach_abs(weights)
        steps = torch._foreach_mul(sizes, grads)
        norms = torch._foreach_norm(steps)
        torch._foreach_mul_(steps, sizes)
        torch._foreach_mul_(steps, radius / (torch.stack(norms).norm() + 1e-12))
        torch._foreach_add_(weights, steps)
        return steps
    norms = [(weight.abs() * grad).norm() for weight, grad in zip(weights, grads)]
    scale, steps = radius / (torch.stack(norms).norm() + 1e-12), []
    for weight, grad in zip(weights, grads):
        steps.append(weight.pow(2) * grad * scale)
        weight.add_(steps[-1])
    return steps


@torch.no_grad()
def return_from(weights, steps, foreach):
    if foreach:
        torch._foreach_sub_(weights, steps)
        return
    for weight, step in zip(weights, steps):
        weight.sub_(step)


@case("tensor-by-tensor", "ViT", "torch._foreach_mul and the like in SAM", shapes=True, rounds=7)
def sharpness_vit(fault):
    images, labels = torch.randn(32, 3, 128, 128, device=GPU), torch.randint(100, (32,), device=GPU)
    model = Vit(12, 384, 6, size=128).to(GPU)
    optimizer, weights = adam(model, fused=True), list(model.parameters())

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        steps = climb(weights, not fault)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        return_from(weights, steps, not fault)
        optimizer.step()

    return step


@case("launch-bound", "mixture of experts", "one batched product for all experts", shapes=True, rounds=7)
def experts_moe(fault):
    vocab, length, dim = 2048, 256, 256
    tokens, embed = text(16, length, vocab), nn.Embedding(vocab, dim)
    blocks = (MoeBlock(dim, 4, 16, looped=fault) for _ in range(4))
    model = nn.Sequential(embed, *blocks, nn.LayerNorm(dim), nn.Linear(dim, vocab)).to(GPU)
    optimizer = adam(model, fused=True)
    return lambda: update(optimizer, gpt_loss(model, tokens))


@case("tensor-by-tensor", "ConvNeXt", "an optimizer's group for each layer, not each tensor", shapes=False, rounds=7)
def group_each_convnext(fault):
    images, labels = torch.randn(64, 3, 128, 128, device=GPU), torch.randint(100, (64,), device=GPU)
    images, model = images.contiguous(memory_format=torch.channels_last), convnext()
    groups = []
    for at, layer in enumerate(reversed(model)):
        # Layers learn more slowly the further they are from the output.
        rate, weights = 1e-4 * 0.9**at, list(layer.parameters())
        groups += [{"params": [weight], "lr": rate} for weight in weights] if fault else []
        groups += [{"params": weights, "lr": rate}] if weights and not fault else []
    optimizer = torch.optim.AdamW(groups)
    return lambda: update(optimizer, F.cross_entropy(model(images), labels))
