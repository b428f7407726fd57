"""Models of signals, videos and tables, a world model, a flow and a quantised autoencoder."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal, kl_divergence

from models import GPU, Block, Residual


class SignalEncoder(nn.Module):
    """Classifies signals of shape (batch, leads, time) by a transformer over pieces of 16 samples."""

    def __init__(self, leads, layers, dim, heads, classes=27):
        super().__init__()
        self.pieces = nn.Conv1d(leads, dim, 16, 16)
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.pieces(x).transpose(1, 2))).mean(1))


class TabularTransformer(nn.Module):
    """An FT-Transformer: each column of a table is a token."""

    def __init__(self, columns, layers, dim, heads):
        super().__init__()
        self.scale, self.shift = (nn.Parameter(torch.randn(columns, dim) / 8) for _ in range(2))
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 1)

    def forward(self, rows):
        x = torch.addcmul(self.shift, rows[:, :, None], self.scale)
        return self.head(self.norm(self.blocks(x)).mean(1)).squeeze(1)


class VideoTransformer(nn.Module):
    """Classifies clips of shape (batch, 3, frames, side, side) by a transformer over blocks of 2x16x16 pixels."""

    def __init__(self, layers, dim, heads, frames, side, classes=100):
        super().__init__()
        self.embed = nn.Linear(3 * 2 * 16 * 16, dim)
        self.places = nn.Parameter(torch.zeros(frames // 2 * (side // 16) ** 2, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        batch, _, frames, side, _ = x.shape
        x = x.view(batch, 3, frames // 2, 2, side // 16, 16, side // 16, 16).permute(0, 2, 4, 6, 1, 3, 5, 7)
        x = self.embed(x.reshape(batch, len(self.places), -1)) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class TabularBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.parts = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.parts(x)


def tabular_mlp(columns, layers, dim):
    """Returns a residual MLP that turns rows into one score each."""
    blocks = (TabularBlock(dim) for _ in range(layers))
    return nn.Sequential(nn.Linear(columns, dim), *blocks, nn.LayerNorm(dim), nn.Linear(dim, 1), nn.Flatten(0)).to(GPU)


class WorldModel(nn.Module):
    """Dreamer's recurrent state-space model. Returns the loss of sequences of observations and actions."""

    def __init__(self, inputs, actions, dim, code):
        super().__init__()
        self.dim, self.code = dim, code
        self.encoder = nn.Sequential(nn.Linear(inputs, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        self.enter, self.cell = nn.Linear(code + actions, dim), nn.GRUCell(dim, dim)
        self.prior = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 2 * code))
        self.posterior = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(dim + code, dim), nn.SiLU(), nn.Linear(dim, inputs))

    def forward(self, seen, done, validate):
        """`validate` is whether distributions check their parameters."""

        def normal(parameters):
            mean, deviation = parameters.chunk(2, 1)
            return Normal(mean, F.softplus(deviation) + 0.1, validate_args=validate)

        features = self.encoder(seen).unbind(1)
        state, code = seen.new_zeros(len(seen), self.dim), seen.new_zeros(len(seen), self.code)
        states, divergences = [], []
        for feature, action in zip(features, done.unbind(1)):
            state = self.cell(F.silu(self.enter(torch.cat([code, action], 1))), state)
            prior, posterior = normal(self.prior(state)), normal(self.posterior(torch.cat([state, feature], 1)))
            code = posterior.rsample()
            states.append(torch.cat([state, code], 1))
            divergences.append(kl_divergence(posterior, prior).mean())
        return F.mse_loss(self.decoder(torch.stack(states, 1)), seen) + 0.1 * torch.stack(divergences).mean()


class Coupling(nn.Module):
    """RealNVP's layer: one half of the values scales and shifts the other."""

    def __init__(self, values, width):
        super().__init__()
        parts = nn.Linear(values // 2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, values)
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        """Returns the new values, with the halves swapped, and the logarithm of the determinant."""
        kept, changed = x.chunk(2, 1)
        scale, shift = self.parts(kept).chunk(2, 1)
        scale = torch.tanh(scale)
        return torch.cat([changed * scale.exp() + shift, kept], 1), scale.sum(1)


class Flow(nn.Module):
    """A RealNVP. Returns the negative logarithm of the likelihood."""

    def __init__(self, layers, values, width):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(values, width) for _ in range(layers))

    def forward(self, x):
        total = 0.0
        for layer in self.layers:
            x, determinant = layer(x)
            total = total + determinant
        return (x.square().sum(1) / 2 - total).mean()


class QuantisedAutoencoder(nn.Module):
    """A VQ-VAE of images whose sides are multiples of 4. Returns the loss."""

    def __init__(self, width=256, codes=8192, dim=512):
        super().__init__()
        self.codes = nn.Embedding(codes, dim)
        encoder = nn.Conv2d(3, width, 4, 4), Residual(width), Residual(width), nn.Conv2d(width, dim, 1)
        # With the variance of the codes, so that different places get different codes.
        encoder = *encoder, nn.BatchNorm2d(dim)
        decoder = nn.Conv2d(dim, width, 1), Residual(width), Residual(width), nn.Conv2d(width, 48, 1)
        self.encoder, self.decoder = nn.Sequential(*encoder), nn.Sequential(*decoder, nn.PixelShuffle(4))

    @torch.no_grad()
    def nearest(self, x):
        """Returns the index of the code nearest to each row, which is computed in f32, as codes are close together."""
        codes = self.codes.weight
        with torch.autocast("cuda", enabled=False):
            return torch.addmm(codes.square().sum(1), x.float(), codes.T, alpha=-2).argmin(1)

    def forward(self, images):
        x = self.encoder(images)
        batch, dim, height, width = x.shape
        rows = x.permute(0, 2, 3, 1).reshape(-1, dim).float()
        chosen = self.codes(self.nearest(rows))
        loss = F.mse_loss(chosen, rows.detach()) + 0.25 * F.mse_loss(rows, chosen.detach())
        passed = (rows + (chosen - rows).detach()).view(batch, height, width, dim).permute(0, 3, 1, 2)
        return loss + F.mse_loss(self.decoder(passed).float(), images)
