//! Trainings that copy more than they need to, from the wrong memory, or in pieces that are too small.

use crate::{
    cases::{CLASSES, IMAGES, NODES, Result, Setup, Sizes, Step, forever},
    models::{Mlp, Trainer, batches},
};
use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{Device, Distribution, Int, Tensor, TensorData, activation::relu},
};
use kernspan_burn::data;
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant, workers};

/// The steps between two reads of a metric. The fiftieth step may be a recorded one, the hundredth is not.
const READ_EVERY: usize = 100;

/// Three convolutions and a head on the mean of each channel.
#[derive(Module, Debug)]
struct Cnn {
    first: Conv2d,
    second: Conv2d,
    third: Conv2d,
    head: Linear,
}

impl Cnn {
    fn new(channels: usize, device: &Device) -> Self {
        let convolution = |inputs, outputs, stride| {
            let config = Conv2dConfig::new([inputs, outputs], [3, 3]).with_stride([stride, stride]);
            config.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init(device)
        };
        Self {
            first: convolution(3, channels, 1),
            second: convolution(channels, 2 * channels, 2),
            third: convolution(2 * channels, 4 * channels, 2),
            head: LinearConfig::new(4 * channels, CLASSES).init(device),
        }
    }

    /// Returns the maps of the first layer, and logits.
    #[instrument(skip_all)]
    fn forward(&self, images: Tensor<4>) -> (Tensor<4>, Tensor<2>) {
        let maps = info_span!("conv").in_scope(|| relu(self.first.forward(images)));
        let x = info_span!("conv").in_scope(|| relu(self.second.forward(maps.clone())));
        let x = info_span!("conv").in_scope(|| relu(self.third.forward(x)));
        let [images, channels, height, width] = x.dims();
        let means = x.reshape([images, channels, height * width]).mean_dim(2).reshape([images, channels]);
        (maps, info_span!("head").in_scope(|| self.head.forward(means)))
    }
}

/// A CNN that watches how strongly each channel of its first layer responds: on the host, which gets all maps, or on
/// the GPU.
pub(crate) fn feature_maps(setup: &Setup, variant: Variant) -> Result<Step> {
    // The images whose maps are looked at: few, so that the copy is the fault and not the work of the host after it.
    const SAMPLE: usize = 4;
    // The maps of 512 images have 64 MiB.
    let (images, pixels, channels) = (setup.size(IMAGES, 2), setup.size(32, 8), setup.size(32, 4));
    let mut trainer = Trainer::new(Cnn::new(channels, &setup.device), &setup.device);
    let mut batches = batches([images, 3, pixels, pixels], CLASSES, &setup.device);
    let mut means = Tensor::<1>::zeros([channels], &setup.device);
    let (mut read, mut step) = (vec![0.0; channels], 0);
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        step += 1;
        let (maps, logits) = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
        let _responses = info_span!("responses").entered();
        if variant == Variant::Fault {
            let data = maps.into_data();
            let maps = data.as_slice::<f32>().expect("f32").chunks(pixels * pixels);
            for (index, map) in maps.take(SAMPLE * channels).enumerate() {
                read[index % channels] += map.iter().sum::<f32>() / map.len() as f32;
            }
            return;
        }
        let mean = maps.detach().reshape([images, channels, pixels * pixels]).mean_dim(2).mean_dim(0);
        means = means.clone() + mean.reshape([channels]);
        if step % READ_EVERY == 0 {
            read.copy_from_slice(&means.clone().into_data().try_to_vec::<f32>().expect("f32"));
        }
    }))
}

/// Linear layers, after each of which a node gets the sum of its neighbours.
#[derive(Module, Debug)]
struct Graph {
    layers: Vec<Linear>,
    head: Linear,
}

impl Graph {
    fn new(width: usize, layers: usize, device: &Device) -> Self {
        let layer = |_| LinearConfig::new(width, width).init(device);
        Self {
            layers: (0..layers).map(layer).collect(),
            head: LinearConfig::new(width, CLASSES).with_bias(false).init(device),
        }
    }

    #[instrument(skip_all)]
    fn forward(&self, adjacency: &Tensor<2>, x: Tensor<2>) -> Tensor<2> {
        let layer =
            |x, layer: &Linear| info_span!("layer").in_scope(|| relu(adjacency.clone().matmul(layer.forward(x))));
        self.head.forward(self.layers.iter().fold(x, layer))
    }
}

/// A graph network that gets the adjacency matrix, which does not change, in each step or once.
pub(crate) fn adjacency(setup: &Setup, variant: Variant) -> Result<Step> {
    // The nodes of a step that have a label.
    const LABELLED: usize = 256;
    // The matrix has 16 MiB.
    let (nodes, width, device) = (setup.size(NODES, 16), setup.width(), setup.device.clone());
    let mut random = Random::new(6);
    let edges: Vec<f32> = (0..nodes * nodes).map(|_| if random.below(64) == 0 { 1.0 / 32.0 } else { 0.0 }).collect();
    let edges = TensorData::new(edges, [nodes, nodes]);
    let uploaded = (variant == Variant::Fixed).then(|| Tensor::<2>::from_data(edges.clone(), &device));
    let x = Tensor::<2>::random([nodes, width], Distribution::Normal(0.0, 1.0), &device);
    let mut numbers = |end: usize| {
        let numbers: Vec<i32> = (0..LABELLED).map(|_| random.below(end) as i32).collect();
        TensorData::new(numbers, [LABELLED])
    };
    let labelled: Vec<_> = (0..16).map(|_| (numbers(nodes), numbers(CLASSES))).collect();
    let mut trainer = Trainer::new(Graph::new(width, 5, &device), &device);
    let mut batches = {
        let device = device.clone();
        data((0..).map(move |step: usize| {
            let (ids, labels) = labelled[step % labelled.len()].clone();
            (Tensor::<1, Int>::from_data(ids, &device), Tensor::<1, Int>::from_data(labels, &device))
        }))
    };
    Ok(forever(move || {
        let (ids, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        let upload = || uploaded.clone().unwrap_or_else(|| Tensor::from_data(edges.clone(), &device));
        let adjacency = info_span!("adjacency").in_scope(upload);
        let logits = trainer.model().forward(&adjacency, x.clone());
        let loss = trainer.loss(logits.select(0, ids), labels);
        trainer.learn(&loss);
    }))
}

/// An MLP on the columns of a table, as a data frame has them: each is uploaded alone, or all are at once.
pub(crate) fn columns(setup: &Setup, variant: Variant) -> Result<Step> {
    const TABLES: usize = 8;
    let (columns, batch, device) = (setup.size(96, 12), setup.batch(), setup.device.clone());
    let mut random = Random::new(7);
    let mut column = || (0..batch).map(|_| random.uniform()).collect::<Vec<f32>>();
    let tables: Vec<Vec<Vec<f32>>> = (0..TABLES).map(|_| (0..columns).map(|_| column()).collect()).collect();
    let labels: Vec<i32> = (0..batch).map(|row| (row % CLASSES) as i32).collect();
    let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [batch]), &device);
    let mut trainer = Trainer::new(
        Tabular {
            first: LinearConfig::new(columns, setup.width()).init(&device),
            rest: Mlp::new(setup.width(), 4, CLASSES, &device),
        },
        &device,
    );
    let mut step = 0;
    Ok(forever(move || {
        let _step = info_span!("train_step").entered();
        step += 1;
        let table = &tables[step % TABLES];
        let x = info_span!("features").in_scope(|| {
            let columns: Vec<Tensor<1>> = if variant == Variant::Fault {
                let upload = |column: &Vec<f32>| Tensor::from_data(TensorData::new(column.clone(), [batch]), &device);
                table.iter().map(upload).collect()
            } else {
                let all = Tensor::<1>::from_data(TensorData::new(table.concat(), [columns * batch]), &device);
                (0..columns).map(|index| all.clone().slice(index * batch..(index + 1) * batch)).collect()
            };
            // The mean and the standard deviation of each column.
            let standardized = columns.into_iter().map(|column| (column - 0.5) / 0.29).collect();
            Tensor::stack::<2>(standardized, 1)
        });
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels.clone());
        trainer.learn(&loss);
    }))
}

/// An MLP whose first layer has fewer inputs.
#[derive(Module, Debug)]
struct Tabular {
    first: Linear,
    rest: Mlp,
}

impl Tabular {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = info_span!("first").in_scope(|| relu(self.first.forward(x)));
        self.rest.forward(x)
    }
}

/// An MLP on the mean of some frames, whose batches are ready in ordinary memory, or in page-locked memory.
pub(crate) fn frames(setup: &Setup, variant: Variant) -> Result<Step> {
    // A batch has 32 MiB.
    const FRAMES: usize = 2;
    // A worker copies a batch twice, which may take it as long as several steps.
    const WORKERS: u64 = 6;
    let (batch, width, device) = (setup.batch(), setup.width(), setup.device.clone());
    let load = |seed: u64| {
        let (mut random, device) = (Random::new(seed + 8), device.clone());
        let frames: Vec<f32> = (0..batch * FRAMES * width).map(|_| random.uniform() - 0.5).collect();
        move || {
            let _load = info_span!("load").entered();
            let labels: Vec<i32> = (0..batch).map(|_| random.below(CLASSES) as i32).collect();
            let mut frames = TensorData::new(frames.clone(), [batch, FRAMES, width]);
            if variant == Variant::Fixed {
                device.staging(std::iter::once(&mut frames));
            }
            (frames, TensorData::new(labels, [batch]))
        }
    };
    let mut batches = data(std::iter::repeat_with(workers::spawn((0..WORKERS).map(load).collect())));
    let mut trainer = Trainer::new(Mlp::new(width, 4, CLASSES, &device), &device);
    Ok(forever(move || {
        let (frames, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        let (frames, labels) = info_span!("to_device")
            .in_scope(|| (Tensor::<3>::from_data(frames, &device), Tensor::<1, Int>::from_data(labels, &device)));
        let logits = trainer.model().forward(frames.mean_dim(1).reshape([batch, width]));
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }))
}
