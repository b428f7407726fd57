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
