"""Vision models: a U-Net, a ViT, a MobileNet, a detector, an autoencoder and a GAN."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from models import GPU, Block, Residual, adam, update


def group_norm(width):
    return nn.GroupNorm(8, width)


class UNet(nn.Module):
    """A U-Net with `depth` convolutions in each stage. `norm` takes the number of channels."""

    def __init__(self, inputs, outputs, width, levels=4, depth=2, norm=group_norm):
        super().__init__()

        def stage(inputs, outputs):
            parts = []
            for at in range(depth):
                conv = nn.Conv2d(outputs if at else inputs, outputs, 3, 1, 1, bias=False)
                parts += [conv, norm(outputs), nn.SiLU()]
            return nn.Sequential(*parts)

        widths = [width << level for level in range(levels + 1)]
        self.downs = nn.ModuleList(stage(a, b) for a, b in zip([inputs, *widths], widths))
        pairs = list(zip(widths, widths[1:]))[::-1]
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairs)
        self.merges = nn.ModuleList(stage(2 * a, a) for a, _ in pairs)
        self.times, self.out = nn.Embedding(1000, widths[-1]), nn.Conv2d(width, outputs, 1)

    def forward(self, x, time=None):
        """`time` is the step of diffusion of each image, if this is a denoiser."""
        skips = []
        for down in self.downs:
            x = down(F.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        skips.pop()
        x = x if time is None else x + self.times(time)[:, :, None, None]
        for up, merge in zip(self.ups, self.merges):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return self.out(x)


def denoising_loss(model, images):
    """The loss of a diffusion model, with noise and times made on the GPU."""
    noise, time = torch.randn_like(images), torch.randint(1000, (len(images),), device=GPU)
    kept = torch.cos(time * (torch.pi / 2000))[:, None, None, None]
    return F.mse_loss(model(kept * images + (1 - kept * kept).sqrt() * noise, time), noise)


class Vit(nn.Module):
    def __init__(self, layers, dim, heads, size=224, patch=16, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.places = nn.Parameter(torch.zeros((size // patch) ** 2, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads, causal=False) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class Inverted(nn.Module):
    """MobileNet's block: a depthwise convolution between two of 1x1."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        inner, self.residual = 4 * inputs, inputs == width and stride == 1
        self.parts = nn.Sequential(
            *(nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6(inplace=True)),
            *(nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), nn.BatchNorm2d(inner)),
            *(nn.ReLU6(inplace=True), nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)),
        )

    def forward(self, x):
        return x + self.parts(x) if self.residual else self.parts(x)


def mobilenet(widths=(24, 24, 40, 40, 40, 80, 80, 80, 112, 112, 112, 160, 160), classes=100):
    layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6(inplace=True)]
    for inputs, width in zip((32, *widths), widths):
        layers.append(Inverted(inputs, width, 1 if inputs == width else 2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes)).to(GPU)


class Detector(nn.Module):
    """Returns the scores of classes and a box for each place, of four feature maps."""

    def __init__(self, width=64, classes=20):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 4, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        stages = (nn.Sequential(Residual(width, 2 if level else 1), Residual(width)) for level in range(4))
        self.stages = nn.ModuleList(stages)
        self.scores, self.boxes = nn.Conv2d(width, classes, 3, 1, 1), nn.Conv2d(width, 4, 3, 1, 1)

    def forward(self, x):
        x, maps = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            maps.append([head(x).flatten(2).transpose(1, 2) for head in (self.scores, self.boxes)])
        return maps


def autoencoder(width=64):
    """An autoencoder of images whose sides are multiples of 8."""
    encoder = [nn.Conv2d(3, width, 4, 4), Residual(width), Residual(2 * width, 2, width), Residual(2 * width)]
    decoder = [nn.ConvTranspose2d(2 * width, width, 2, 2), Residual(width), nn.Conv2d(width, 48, 1), nn.PixelShuffle(4)]
    return nn.Sequential(*encoder, *decoder).to(GPU)


class Gan:
    """A DCGAN for images of 128x128. A step is `discriminate` and then `generate` with what that returned."""

    def __init__(self, batch):
        widths = (512, 256, 128, 64, 32)
        up, down = [nn.ConvTranspose2d(128, 512, 4), nn.BatchNorm2d(512), nn.ReLU(inplace=True)], []
        for wide, narrow in zip(widths, widths[1:]):
            up += [nn.ConvTranspose2d(wide, narrow, 4, 2, 1), nn.BatchNorm2d(narrow), nn.ReLU(inplace=True)]
        for narrow, wide in zip((3, *widths[::-1]), widths[::-1]):
            down += [nn.Conv2d(narrow, wide, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
        self.generator = nn.Sequential(*up, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh()).to(GPU)
        self.discriminator = nn.Sequential(*down, nn.Conv2d(512, 1, 4), nn.Flatten(0)).to(GPU)
        self.optimizers = [adam(model, fused=True) for model in (self.generator, self.discriminator)]
        self.real = torch.rand(batch, 3, 128, 128, device=GPU)

    def discriminate(self):
        fake = self.generator(torch.randn(len(self.real), 128, 1, 1, device=GPU))
        loss = F.softplus(-self.discriminator(self.real)).mean() + F.softplus(self.discriminator(fake.detach())).mean()
        update(self.optimizers[1], loss)
        return fake

    def generate(self, fake):
        update(self.optimizers[0], F.softplus(-self.discriminator(fake)).mean())
