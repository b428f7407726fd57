"""Models of scenes, volumes, speech and decisions, a mixture of experts, a ConvNeXt and a cross network."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from models import GPU, Block


class Siren(nn.Module):
    """Maps places of an image to colours, by layers with a sine after each."""

    def __init__(self, layers=6, width=256):
        super().__init__()
        widths = [2] + [width] * layers
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.head = nn.Linear(width, 3)
        for layer in self.layers:
            bound = (6 / layer.in_features) ** 0.5 / (1 if layer is self.layers[0] else 30)
            nn.init.uniform_(layer.weight, -bound, bound)

    def forward(self, x):
        for layer in self.layers:
            x = torch.sin(30 * layer(x))
        return self.head(x)


class Nerf(nn.Module):
    """A radiance field. Returns the colours of rays, which are six numbers each: origin and direction."""

    def __init__(self, samples=64, width=256, octaves=8):
        super().__init__()
        self.register_buffer("scales", 2.0 ** torch.arange(octaves))
        self.register_buffer("depths", torch.linspace(2, 6, samples))
        parts = [nn.Linear(6 * octaves, width), nn.ReLU(inplace=True)]
        for _ in range(6):
            parts += [nn.Linear(width, width), nn.ReLU(inplace=True)]
        self.parts = nn.Sequential(*parts, nn.Linear(width, 4))

    def forward(self, rays):
        origins, directions = rays.chunk(2, 1)
        points = origins[:, None] + directions[:, None] * self.depths[:, None]
        angles = (points[..., None] * self.scales).flatten(2)
        out = self.parts(torch.cat([angles.sin(), angles.cos()], 2))
        density = F.softplus(out[..., 3]) * (4 / len(self.depths))
        passed = torch.exp(density - density.cumsum(1))
        weights = passed * (1 - torch.exp(-density))
        return (weights[..., None] * torch.sigmoid(out[..., :3])).sum(1)


class VNet(nn.Module):
    """Segments volumes of shape (batch, channels, side, side, side). The side is a multiple of 8."""

    def __init__(self, channels=4, classes=4, widths=(32, 64, 128)):
        super().__init__()

        def stage(inputs, width):
            parts = []
            for at in range(2):
                parts += [nn.Conv3d(width if at else inputs, width, 3, padding=1, bias=False), nn.BatchNorm3d(width)]
                parts.append(nn.ReLU(inplace=True))
            return nn.Sequential(*parts)

        self.downs = nn.ModuleList(nn.Conv3d(a, b, 2, 2) for a, b in zip((channels, *widths), widths))
        self.stages = nn.ModuleList(stage(width, width) for width in widths)
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.ups = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairs)
        self.merges = nn.ModuleList(stage(2 * a, a) for a, _ in pairs)
        self.out = nn.ConvTranspose3d(widths[0], classes, 2, 2)

    def forward(self, x):
        skips = []
        for down, stage in zip(self.downs, self.stages):
            x = stage(down(x))
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.ups, self.merges):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return self.out(x)


class ConformerBlock(nn.Module):
    """Attention and a depthwise convolution over time, between two halves of a feed-forward network."""

    def __init__(self, dim, heads, size=15):
        super().__init__()
        self.first, self.last = (
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))
            for _ in range(2)
        )
        self.heads, self.n1, self.n2, self.n3 = heads, *(nn.LayerNorm(dim) for _ in range(3))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.gate, self.mix = nn.Conv1d(dim, 2 * dim, 1), nn.Conv1d(dim, dim, 1)
        self.depthwise, self.norm = nn.Conv1d(dim, dim, size, padding=size // 2, groups=dim), nn.BatchNorm1d(dim)

    def forward(self, x):
        batch, length, dim = x.shape
        x = x + self.first(x) / 2
        q, k, v = self.qkv(self.n1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, dim))
        y = F.glu(self.gate(self.n2(x).transpose(1, 2)), 1)
        x = x + self.mix(F.silu(self.norm(self.depthwise(y)))).transpose(1, 2)
        return self.n3(x + self.last(x) / 2)


def conformer(layers, dim, heads, mels=80, units=500):
    """Returns a network that names the unit of speech of each frame of a spectrogram of shape (batch, time, mels)."""
    blocks = (ConformerBlock(dim, heads) for _ in range(layers))
    return nn.Sequential(nn.Linear(mels, dim), *blocks, nn.Linear(dim, units)).to(GPU)


class Experts(nn.Module):
    """Feed-forward networks that each choose the tokens they compute. They run one after the other if `looped`, or as
    one batch of products."""

    def __init__(self, experts, dim, share, looped):
        super().__init__()
        self.share, self.looped, self.router = share, looped, nn.Linear(dim, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, dim, 2 * dim) / dim**0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * dim, dim) / (2 * dim) ** 0.5)

    def forward(self, x):
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(1).T.topk(len(rows) * self.share // len(self.up))
        out = torch.zeros_like(rows)
        if self.looped:
            for up, down, weight, index in zip(self.up, self.down, weights, chosen):
                y = F.gelu(rows.index_select(0, index) @ up) @ down
                out = out.index_add(0, index, y * weight[:, None])
        else:
            y = rows.index_select(0, chosen.flatten()).view(*chosen.shape, -1)
            y = torch.bmm(F.gelu(torch.bmm(y, self.up)), self.down) * weights[:, :, None]
            out = out.index_add(0, chosen.flatten(), y.flatten(0, 1))
        return out.view_as(x)


class MoeBlock(nn.Module):
    """A transformer's block with experts after it."""

    def __init__(self, dim, heads, experts, looped):
        super().__init__()
        self.block, self.norm = Block(dim, heads), nn.LayerNorm(dim)
        self.experts = Experts(experts, dim, 2, looped)

    def forward(self, x):
        x = self.block(x)
        return x + self.experts(self.norm(x))


class ConvNextBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(dim, dim, 7, padding=3, groups=dim), nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.scale = nn.Parameter(torch.full((dim,), 1e-2))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.down(F.gelu(self.up(y))) * self.scale).permute(0, 3, 1, 2)


def convnext(depths=(2, 2, 6, 2), widths=(96, 192, 384, 768), classes=100):
    """Returns a ConvNeXt in the layout `channels_last`. The sides of images are multiples of 32."""
    layers = []
    for inputs, width, depth in zip((3, *widths), widths, depths):
        size = 2 if layers else 4
        layers += [nn.Conv2d(inputs, width, size, size), nn.GroupNorm(1, width)]
        layers += [ConvNextBlock(width) for _ in range(depth)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    return model.to(GPU, memory_format=torch.channels_last)


class CrossNetwork(nn.Module):
    """A DCN: its layers multiply features with each other. Returns the logit of a click."""

    def __init__(self, width, layers, fields=26, rows=50_000, dim=32):
        super().__init__()
        self.table = nn.Embedding(fields * rows, dim)
        self.register_buffer("first", torch.arange(fields) * rows)
        self.widen = nn.Linear(fields * dim, width)
        self.crosses = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.deep = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 512), nn.ReLU())
        self.head = nn.Linear(512, 1)

    def forward(self, categories):
        x = first = self.widen(self.table(categories + self.first).flatten(1))
        for cross in self.crosses:
            x = torch.addcmul(x, first, cross(x))
        return self.head(self.deep(x)).squeeze(1)


class DecisionBlock(nn.Module):
    """A causal block whose attention is written out if `by_hand`."""

    def __init__(self, dim, heads, length, by_hand, dropout=0.1):
        super().__init__()
        self.heads, self.by_hand, self.dropout = heads, by_hand, dropout
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.register_buffer("future", torch.ones(length, length, dtype=torch.bool).triu(1))

    def attend(self, q, k, v):
        if not self.by_hand:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        weights = torch.softmax(scores.masked_fill(self.future, float("-inf")), -1)
        return F.dropout(weights, self.dropout) @ v

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.n1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(batch, length, dim))
        return x + self.mlp(self.n2(x))


class DecisionTransformer(nn.Module):
    """Predicts actions from the returns, states and actions before them, of shape (batch, moves, values)."""

    def __init__(self, layers, dim, heads, moves, states, actions, by_hand):
        super().__init__()
        self.embed = nn.ModuleList(nn.Linear(values, dim) for values in (1, states, actions))
        self.places = nn.Parameter(torch.zeros(3 * moves, dim))
        self.blocks = nn.Sequential(*(DecisionBlock(dim, heads, 3 * moves, by_hand) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, actions)

    def forward(self, returns, states, actions):
        tokens = [embed(values) for embed, values in zip(self.embed, (returns, states, actions))]
        x = self.blocks(torch.stack(tokens, 2).flatten(1, 2) + self.places)
        return self.head(self.norm(x[:, 1::3]))
