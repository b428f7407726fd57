"""Models, data and optimizer steps that several trainings share."""

import torch
import torch.nn as nn
import torch.nn.functional as F

GPU = torch.device("cuda")


class Block(nn.Module):
    """A transformer's block. `norm` and `act` are classes of modules."""

    def __init__(self, dim, heads, norm=nn.LayerNorm, act=nn.GELU, causal=True):
        super().__init__()
        self.causal = causal
        self.heads, self.n1, self.n2 = heads, norm(dim), norm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.act, self.down = nn.Linear(dim, 4 * dim), act(), nn.Linear(4 * dim, dim)

    def forward(self, x, mask=None):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.n1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal and mask is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(self.act(self.up(self.n2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, dim, heads, vocab=4096, length=512, **parts):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, **parts) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, x, each=None, mask=None):
        x = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
            if each:
                each(x)
        return self.head(x)


class Residual(nn.Module):
    def __init__(self, width, stride=1, inputs=None):
        super().__init__()
        inputs = inputs or width
        self.c1, self.b1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.c2, self.b2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.skip = nn.Conv2d(inputs, width, 1, stride) if inputs != width or stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(y + self.skip(x))


class Recommender(nn.Module):
    """A DLRM: ranks by the products of embedded categories with each other and with the dense features."""

    def __init__(self, dense=1024, fields=31, rows=20_000, dim=32):
        super().__init__()
        self.table = nn.Embedding(fields * rows, dim)
        self.register_buffer("first", torch.arange(fields) * rows)
        self.bottom = nn.Sequential(nn.Linear(dense, 512), nn.ReLU(), nn.Linear(512, dim), nn.ReLU())
        self.top = nn.Sequential(nn.Linear((fields + 1) ** 2 + dim, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, dense, categories):
        dense = self.bottom(dense)
        vectors = torch.cat([dense[:, None], self.table(categories + self.first)], 1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([dense, products], 1)).squeeze(1)


class Lstm(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self, dim=512, vocab=4096):
        super().__init__()
        self.tokens, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.lstm = nn.LSTM(dim, dim, 2, batch_first=True)

    def forward(self, x):
        return self.head(self.lstm(self.tokens(x))[0])


class SequentialRecommender(nn.Module):
    """Returns the state after each item that a user has seen. Its products with `items` rank the next item."""

    def __init__(self, layers, dim, heads, items, length):
        super().__init__()
        self.items, self.places = nn.Embedding(items, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = self.items(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class PointNet(nn.Module):
    """Classifies point clouds of shape (batch, 3, points) by the maximum of each feature over all points."""

    def __init__(self, widths=(64, 128, 768, 1024), classes=40):
        super().__init__()
        parts = []
        for inputs, width in zip((3, *widths), widths):
            parts += [nn.Conv1d(inputs, width, 1, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True)]
        self.points = nn.Sequential(*parts)
        self.head = nn.Sequential(nn.Linear(widths[-1], 512), nn.ReLU(), nn.Linear(512, classes))

    def forward(self, x):
        return self.head(self.points(x).amax(2))


class Vae(nn.Module):
    """A variational autoencoder of flat images. Returns the loss."""

    def __init__(self, inputs=3072, width=1024, code=128):
        super().__init__()

        def layers(first, last):
            hidden = nn.Linear(first, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
            return nn.Sequential(*hidden, nn.Linear(width, last))

        self.encoder, self.decoder = layers(inputs, 2 * code), layers(code, inputs)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        painted = self.decoder(mean + torch.randn_like(mean) * (log_variance / 2).exp())
        divergence = (mean.square() + log_variance.exp() - log_variance - 1).mean() / 2
        return F.mse_loss(painted, x) + 1e-3 * divergence


class ActorCritic(nn.Module):
    """A policy of continuous actions, and the value of each state. Returns the loss of PPO."""

    def __init__(self, inputs=376, actions=17, width=512):
        super().__init__()

        def layers(last):
            hidden = nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
            return nn.Sequential(*hidden, nn.Linear(width, last))

        self.actor, self.critic = layers(actions), layers(1)
        self.log_deviation = nn.Parameter(torch.zeros(actions))

    def forward(self, states, actions, likelihoods, advantages, returns):
        distances = (actions - self.actor(states)) * torch.exp(-self.log_deviation)
        now = -(distances.square() / 2 + self.log_deviation).sum(1)
        ratio = (now - likelihoods).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        return F.mse_loss(self.critic(states).squeeze(1), returns) - gain.mean()


class GraphAttention(nn.Module):
    """A layer of a graph attention network."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.norm, self.linear = heads, nn.LayerNorm(dim), nn.Linear(dim, dim)
        self.near, self.far = (nn.Parameter(torch.randn(heads, dim // heads) / 8) for _ in range(2))

    def forward(self, x, neighbours, expand):
        """`expand` repeats the row of each node once for each of its edges. `neighbours` are the other ends of the
        edges, in the same order."""
        h = self.linear(self.norm(x)).view(len(x), self.heads, -1)
        scores = (h * self.far).sum(-1).index_select(0, neighbours) + expand((h * self.near).sum(-1))
        scores = F.leaky_relu(scores, 0.2).clamp(max=10).exp()
        nodes = expand(torch.arange(len(x), device=x.device))
        sums = x.new_zeros(len(x), self.heads).index_add_(0, nodes, scores)
        messages = h.index_select(0, neighbours) * (scores / expand(sums))[:, :, None]
        return x + F.elu(torch.zeros_like(h).index_add_(0, nodes, messages).flatten(1))


class Dilated(nn.Module):
    """A residual block of a temporal convolutional network."""

    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation, bias=False)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


def temporal_cnn(inputs, width, blocks):
    """Returns a network that turns signals of shape (batch, inputs, time) into `width` features."""
    stem = nn.Conv1d(inputs, width, 8, 4, 2)
    dilated = (Dilated(width, 1 << at % 5) for at in range(blocks))
    return nn.Sequential(stem, *dilated, nn.AdaptiveAvgPool1d(1), nn.Flatten()).to(GPU)


def cnn(width=64, blocks=(2, 2), classes=100):
    layers = [nn.Conv2d(3, width, 7, 2, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = width
    for index, count in enumerate(blocks):
        for at in range(count):
            layers.append(Residual(width << index, 2 if index and not at else 1, inputs))
            inputs = width << index
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)).to(GPU)


def mlp(layers, width, act=nn.GELU, classes=None):
    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), act())]
    return nn.Sequential(*parts, nn.Linear(width, classes or width)).to(GPU)


def text(batch, length=512, vocab=4096, device=GPU):
    return torch.randint(vocab, (batch, length + 1), device=device)


def gpt_loss(model, batch, **options):
    logits = model(batch[:, :-1], **options)
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def adam(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, **options)


def update(optimizer, loss):
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
