"""Vision models: a U-Net, a ViT, a masked autoencoder, a mixer, a MobileNet, a Darknet, a detector, an autoencoder, a
network for super-resolution and a GAN."""

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


class MaskedAutoencoder(nn.Module):
    """A ViT that sees a quarter of the patches of each image and paints all of them. Returns the loss."""

    def __init__(self, layers, dim, heads, size=224, patch=16, narrow=192):
        super().__init__()
        self.patch, self.count, pixels = patch, (size // patch) ** 2, 3 * patch * patch
        self.embed, self.places = nn.Linear(pixels, dim), nn.Parameter(torch.zeros(self.count, dim))
        blocks = (Block(dim, heads, causal=False) for _ in range(layers))
        self.encoder = nn.Sequential(*blocks, nn.LayerNorm(dim), nn.Linear(dim, narrow))
        self.unseen, self.all_places = (nn.Parameter(torch.zeros(count, narrow)) for count in (1, self.count))
        self.decoder = nn.Sequential(Block(narrow, 3, causal=False), nn.LayerNorm(narrow), nn.Linear(narrow, pixels))

    def forward(self, images):
        batch, side = len(images), images.shape[2] // self.patch
        patches = images.view(batch, 3, side, self.patch, side, self.patch).permute(0, 2, 4, 1, 3, 5)
        patches = patches.reshape(batch, self.count, -1)
        seen = torch.rand(batch, self.count, device=images.device).argsort(1)[:, : self.count // 4]

        def index(rows):
            return seen[:, :, None].expand(-1, -1, rows.shape[-1])

        places = self.places.expand(batch, -1, -1).gather(1, index(self.places))
        x = self.encoder(self.embed(patches.gather(1, index(patches))) + places)
        whole = self.unseen.expand(batch, self.count, -1).scatter(1, index(x), x)
        return F.mse_loss(self.decoder(whole + self.all_places), patches)


class Mixing(nn.Module):
    """MLP-Mixer's layer: an MLP over the patches, and one over the channels."""

    def __init__(self, patches, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.patches = nn.Sequential(nn.Linear(patches, 256), nn.GELU(), nn.Linear(256, patches))
        self.channels = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.patches(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.n2(x))


class Mixer(nn.Module):
    def __init__(self, layers, dim, size=128, patch=16, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, patch)
        self.layers = nn.Sequential(*(Mixing((size // patch) ** 2, dim) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.norm(self.layers(self.patches(x).flatten(2).transpose(1, 2))).mean(1))


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


class Bottleneck(nn.Module):
    """Darknet's block. `act` is a class of modules."""

    def __init__(self, width, act):
        super().__init__()
        self.parts = nn.Sequential(*conv_norm(width, width // 2, 1, 1, act), *conv_norm(width // 2, width, 3, 1, act))

    def forward(self, x):
        return x + self.parts(x)


def conv_norm(inputs, width, size, stride, act):
    conv = nn.Conv2d(inputs, width, size, stride, size // 2, bias=False)
    return conv, nn.BatchNorm2d(width), act()


def darknet(act, widths=(64, 128, 256), blocks=2, classes=100):
    """Returns a Darknet in the layout `channels_last`, whose sides shrink by two at each width."""
    layers = []
    for inputs, width in zip((3, *widths), widths):
        layers += [*conv_norm(inputs, width, 3, 2, act), *(Bottleneck(width, act) for _ in range(blocks))]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    return model.to(GPU, memory_format=torch.channels_last)


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


class PlainResidual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x):
        return x + self.c2(F.relu(self.c1(x)))


def upscaler(width=64, blocks=8):
    """Returns an EDSR: a network that doubles the sides of images."""
    parts = nn.Conv2d(3, width, 3, 1, 1), *(PlainResidual(width) for _ in range(blocks))
    return nn.Sequential(*parts, nn.Conv2d(width, 12, 3, 1, 1), nn.PixelShuffle(2)).to(GPU)


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
