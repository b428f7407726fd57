//! Trainings in which the GPU waits for the host.

use crate::{
    case::{Setup, Step},
    models::{Cnn, adamw, batches, hits, learn, next, sgd, trained},
    transformer::attend,
};
use candle_core::{D, Device, Result, Tensor, backprop::GradStore};
use candle_nn::{Module, Optimizer, VarBuilder, VarMap, loss};
use kernspan_candle::{
    Traced,
    nn::{self, Linear, linear_no_bias},
};
use tracing::info_span;
use trainings_runner::{Random, Variant, workers};

/// The steps between two reads of the metrics.
const READ_EVERY: usize = 50;

/// A CNN that reads loss, accuracy and gradient norm in each step, or sums them up on the GPU.
pub(crate) fn metrics(setup: &Setup, variant: Variant) -> Result<Step> {
    metrics_with_batch(setup, setup.size(setup.amount, 2), variant)
}

fn metrics_with_batch(setup: &Setup, batch: usize, variant: Variant) -> Result<Step> {
    const CHANNELS: [usize; 4] = [16, 32, 32, 64];
    let pixels = setup.size(32, 16);
    let (variables, vb) = trained(&setup.device);
    let model = Cnn::new(pixels, &CHANNELS, &vb)?;
    let mut optimizer = adamw(&variables)?;
    let mut batches = batches(&[batch, 3, pixels, pixels], Cnn::CLASSES, &setup.device)?;
    let mut metrics = Metrics::new(variant.is_fault());
    Ok(Box::new(move || {
        let (images, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let logits = model.forward(&images)?;
            let loss = info_span!("loss").in_scope(|| loss::cross_entropy(&logits, &labels))?;
            metrics.log(0, &loss)?;
            metrics.log(1, &hits(&logits, &labels)?)?;
            let gradients = kernspan_candle::backward(&loss)?;
            metrics.log(2, &square_norm(&variables, &gradients)?)?;
            optimizer.step(&gradients)
        })
    }))
}

pub(crate) fn square_norm(variables: &VarMap, gradients: &GradStore) -> Result<Tensor> {
    let squares = variables.all_vars().into_iter().filter_map(|variable| {
        let gradient = gradients.get(&variable)?;
        Some(gradient.sqr().and_then(|squares| squares.sum_all()))
    });
    squares.reduce(|one, other| one? + other?).ok_or_else(|| candle_core::Error::msg("no gradients"))?
}

/// Numbers of each step, and the sums of those that were not read.
pub(crate) struct Metrics {
    is_read: bool,
    values: Vec<f32>,
    sums: Vec<Tensor>,
    steps: usize,
}

impl Metrics {
    pub(crate) fn new(is_read: bool) -> Self {
        Self { is_read, values: Vec::new(), sums: Vec::new(), steps: 0 }
    }

    #[tracing::instrument(skip_all)]
    pub(crate) fn log(&mut self, index: usize, value: &Tensor) -> Result<()> {
        if self.is_read {
            self.values.push(value.to_scalar()?);
            return Ok(());
        }
        self.steps += usize::from(index == 0);
        match self.sums.get_mut(index) {
            Some(sum) => *sum = (&*sum + value.detach())?,
            None => self.sums.push(value.detach()),
        }
        if self.steps.is_multiple_of(READ_EVERY) {
            self.values.push(self.sums[index].to_scalar()?);
        }
        Ok(())
    }
}

/// Returns the batch with which the GPU computes for as long as the host launches, so that waiting costs most.
pub(crate) fn batch_of_metrics(setup: &Setup) -> Result<usize> {
    batch(setup, 1024, 1.0, |batch| metrics_with_batch(setup, batch, Variant::Fixed))
}

/// Returns the batch with which the GPU computes for this many times as long as the host launches.
pub(crate) fn batch(setup: &Setup, large: usize, ratio: f64, make: impl Fn(usize) -> Result<Step>) -> Result<usize> {
    let step_us = |batch: usize| -> Result<f64> {
        let mut step = make(batch)?;
        trainings_runner::mean(setup, &mut step, 20)?;
        trainings_runner::mean(setup, &mut step, 30)
    };
    // The GPU has next to nothing to do for a batch of 4, and for a large one it takes longer than the host.
    let (host, gpu) = (step_us(4)?, step_us(large)?);
    Ok(((large as f64 * ratio * host / gpu) as usize).clamp(8, large) / 8 * 8)
}

const PIXELS: usize = 64;
const BATCH: usize = 128;

/// A CNN whose images are augmented in the loop, or by workers.
pub(crate) fn augmented(setup: &Setup, variant: Variant) -> Result<Step> {
    let device = setup.device.clone();
    let (pixels, batch) = (setup.size(PIXELS, 16), setup.size(BATCH, 2));
    let mut train = augmented_model(setup)?;
    // With the time of the augmentations as calibrated, two workers would do if they were never interrupted.
    const WORKERS: u64 = 4;
    let augmentations = setup.amount;
    let mut load: Box<dyn FnMut() -> Batch> = if variant.is_fault() {
        let mut loader = Loader::new(1, batch, pixels);
        Box::new(move || loader.batch(augmentations))
    } else {
        let load = |seed: u64| {
            let mut loader = Loader::new(seed, batch, pixels);
            move || loader.batch(augmentations)
        };
        Box::new(workers::spawn((0..WORKERS).map(load).collect()))
    };
    Ok(Box::new(move || {
        info_span!("train_step").in_scope(|| {
            let (images, labels) = info_span!("next_batch").in_scope(|| load().upload(&device))?;
            train(&images, &labels)
        })
    }))
}

type Train = Box<dyn FnMut(&Tensor, &Tensor) -> Result<()>>;

fn augmented_model(setup: &Setup) -> Result<Train> {
    const CHANNELS: [usize; 3] = [32, 64, 128];
    let (variables, vb) = trained(&setup.device);
    let model = Cnn::new(setup.size(PIXELS, 16), &CHANNELS[..setup.size(3, 2)], &vb)?;
    let mut optimizer = sgd(&variables)?;
    Ok(Box::new(move |images, labels| learn(&mut optimizer, &model.forward(images)?, labels)))
}

/// Returns the number of augmentations that take one and a half times as long as the GPU takes for the batch.
pub(crate) fn augmentations(setup: &Setup) -> Result<usize> {
    let (mut train, mut loader) = (augmented_model(setup)?, Loader::new(0, BATCH, PIXELS));
    let (images, labels) = loader.batch(1).upload(&setup.device)?;
    let mut step: Step = Box::new(move || train(&images, &labels));
    trainings_runner::mean(setup, &mut step, 20)?;
    let step_us = trainings_runner::mean(setup, &mut step, 20)?;
    let start = std::time::Instant::now();
    (0..8).for_each(|_| drop(loader.batch(1)));
    let augmentation_us = start.elapsed().as_secs_f64() * 1e6 / 8.0;
    Ok((1.5 * step_us / augmentation_us).round().max(1.0) as usize)
}

/// Images with labels, on the host.
struct Batch {
    images: Vec<f32>,
    labels: Vec<u32>,
    pixels: usize,
}

impl Batch {
    fn upload(self, device: &Device) -> Result<(Tensor, Tensor)> {
        let count = self.labels.len();
        let images = Tensor::from_vec(self.images, (count, 3, self.pixels, self.pixels), device)?;
        Ok((images, Tensor::from_vec(self.labels, count, device)?))
    }
}

/// Loads images, and augments them.
struct Loader {
    random: Random,
    images: Vec<u8>,
    batch: usize,
    pixels: usize,
}

impl Loader {
    fn new(seed: u64, batch: usize, pixels: usize) -> Self {
        let mut random = Random::new(seed + 1);
        let images = (0..batch * 3 * pixels * pixels).map(|_| random.next() as u8).collect();
        Self { random, images, batch, pixels }
    }

    /// Augments images by shifts, flips and changes of brightness and contrast, one after the other.
    #[tracing::instrument(name = "augment", skip_all)]
    fn batch(&mut self, augmentations: usize) -> Batch {
        let pixels = self.pixels;
        let plane = pixels * pixels;
        let mut images: Vec<f32> = self.images.iter().map(|&value| f32::from(value) / 255.0 - 0.5).collect();
        let mut row = vec![0.0; pixels];
        for _ in 0..augmentations {
            for image in images.chunks_mut(3 * plane) {
                let (shift, flips) = (self.random.below(9), self.random.below(2) == 0);
                let (contrast, brightness) = (0.8 + 0.4 * self.random.uniform(), 0.1 * self.random.uniform());
                for line in image.chunks_mut(pixels) {
                    for (column, value) in row.iter_mut().enumerate() {
                        let column = (column + shift) % pixels;
                        let column = if flips { pixels - 1 - column } else { column };
                        *value = (line[column] * contrast + brightness).clamp(-2.0, 2.0);
                    }
                    line.copy_from_slice(&row);
                }
            }
        }
        let labels = (0..self.batch).map(|_| self.random.below(Cnn::CLASSES) as u32).collect();
        Batch { images, labels, pixels }
    }
}

/// A small transformer that computes its heads one by one, or all at once.
pub(crate) fn heads(setup: &Setup, variant: Variant) -> Result<Step> {
    heads_with_batch(setup, setup.size(setup.amount, 2), variant)
}

/// Returns the batch with which the repaired training is no longer bound by its launches.
pub(crate) fn batch_of_heads(setup: &Setup) -> Result<usize> {
    batch(setup, 512, 1.3, |batch| heads_with_batch(setup, batch, Variant::Fixed))
}

fn heads_with_batch(setup: &Setup, batch: usize, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    const BLOCKS: usize = 1;
    let (width, heads, length) = (setup.size(256, 8), setup.size(8, 2), setup.size(128, 4));
    let (variables, vb) = trained(&setup.device);
    let block = |index: usize| {
        let make = |vb: VarBuilder<'_>| SmallBlock::new(width, heads, variant, &vb);
        Ok(Traced::at(vb.pp(format!("blocks.{index}")), make)?.named("block"))
    };
    let blocks: Vec<Traced<SmallBlock>> = (0..BLOCKS).map(block).collect::<Result<_>>()?;
    let head = nn::linear_no_bias(width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, length, width], CLASSES, &setup.device)?;
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let forward = || {
                let x = blocks.iter().try_fold(x.clone(), |x, block| block.forward(&x))?;
                head.forward(&x.narrow(1, 0, 1)?.squeeze(1)?.contiguous()?)
            };
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// Attention and a feed-forward network, each with a residual connection.
struct SmallBlock {
    /// One for each head, or one for all.
    projections: Vec<Linear>,
    out: Linear,
    up: Linear,
    down: Linear,
    heads: usize,
}

impl SmallBlock {
    fn new(width: usize, heads: usize, variant: Variant, vb: &VarBuilder<'_>) -> Result<Self> {
        let (count, size) = if variant.is_fault() { (3 * heads, width / heads) } else { (1, 3 * width) };
        let projection = |index: usize| linear_no_bias(width, size, vb.pp(format!("projections.{index}")));
        Ok(Self {
            projections: (0..count).map(projection).collect::<Result<_>>()?,
            out: linear_no_bias(width, width, vb.pp("out"))?,
            up: linear_no_bias(width, 4 * width, vb.pp("up"))?,
            down: linear_no_bias(4 * width, width, vb.pp("down"))?,
            heads,
        })
    }

    fn attention(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        if let [all] = &self.projections[..] {
            let heads = all.forward(x)?.reshape((batch, length, 3, self.heads, width / self.heads))?;
            let part = |index: usize| heads.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
            let mixed = attend(&part(0)?, &part(1)?, &part(2)?, false)?;
            return mixed.transpose(1, 2)?.reshape((batch, length, width));
        }
        let head = |projections: &[Linear]| {
            let [queries, keys, values] = projections else { candle_core::bail!("not three projections") };
            attend(&queries.forward(x)?, &keys.forward(x)?, &values.forward(x)?, false)
        };
        let heads = self.projections.chunks(3).map(head).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&heads, D::Minus1)
    }
}

impl Module for SmallBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = (x + self.out.forward(&self.attention(x)?)?)?;
        &x + self.down.forward(&self.up.forward(&x)?.relu()?)?
    }
}
