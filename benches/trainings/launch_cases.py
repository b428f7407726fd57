"""Trainings that launch more kernels than the host has time for."""

import torch
import torch.nn.functional as F

from models import GPU, Gpt, adam, cnn, gpt_loss, mlp, text, update
from registry import case


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
