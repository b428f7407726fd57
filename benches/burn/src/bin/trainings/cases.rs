//! The trainings.

use crate::loader::{Batch, Loader, Random};
use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig,
        loss::{CrossEntropyLoss, CrossEntropyLossConfig},
    },
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer},
    tensor::{Device, Distribution, Int, Tensor, TensorData, activation::relu},
};
use kernspan_burn::data;
use std::{error::Error, sync::mpsc};
use tracing::{info_span, instrument};

/// One step of a training. It holds the model, the optimizer and the data.
pub(crate) type Step = Box<dyn FnMut()>;

/// Finds the size that makes a case meaningful on the machine at hand.
pub(crate) type Calibrate = fn(&Setup) -> Result<usize, Box<dyn Error>>;

/// A training with a planted fault.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) model: &'static str,
    /// The kind of the finding that names the fault.
    pub(crate) kind: &'static str,
    pub(crate) fix: &'static str,
    /// The samples of a step with the fault, and of a repaired one.
    pub(crate) samples: [usize; 2],
    /// Returns a size that depends on the machine, [`Setup::amount`].
    pub(crate) calibrate: Option<Calibrate>,
    pub(crate) make: fn(&Setup, Variant) -> Step,
}

/// Whether a training has its fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Fault,
    Fixed,
}

/// Both variants, in the order in which they are timed.
pub(crate) const VARIANTS: [Variant; 2] = [Variant::Fault, Variant::Fixed];

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fault => "fault",
            Self::Fixed => "fixed",
        }
    }
}

/// What a training is made with.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) device: Device,
    /// Whether sizes are as small as possible.
    pub(crate) tiny: bool,
    /// The size that the case found by [`Case::calibrate`], or 1.
    pub(crate) amount: usize,
}

impl Setup {
    pub(crate) fn new(device: &Device, tiny: bool) -> Self {
        Self { device: device.clone().autodiff(), tiny, amount: 1 }
    }

    /// Returns the size of the training that is measured, or the one that only has to run.
    fn size(&self, full: usize, tiny: usize) -> usize {
        if self.tiny { tiny } else { full }
    }

    fn batch(&self) -> usize {
        self.size(BATCH, 4)
    }

    fn width(&self) -> usize {
        self.size(WIDTH, 16)
    }
}

/// The rows of a batch and the width of a layer in most trainings, and the number of classes.
const BATCH: usize = 4096;
const WIDTH: usize = 1024;
const CLASSES: usize = 64;
/// The rows of the batches of the host-bound training.
const SMALL: [usize; 2] = [64, 512];
/// The steps between two reads of a metric.
const READ_EVERY: usize = 50;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "loss-every-step",
        model: "MLP with AdamW",
        kind: "host-sync",
        fix: "loss and accuracy are summed on the GPU and read every 50 steps",
        samples: [BATCH; 2],
        calibrate: None,
        make: metrics,
    },
    Case {
        name: "augment-in-loop",
        model: "MLP on images",
        kind: "input-bound",
        fix: "worker threads augment batches ahead of the loop, through a bounded channel",
        samples: [BATCH; 2],
        calibrate: Some(augmentations),
        make: augmented,
    },
    Case {
        name: "logits-to-host",
        model: "MLP with 2048 classes",
        kind: "large-readback",
        fix: "`argmax` on the GPU; the accuracy is read every 50 steps",
        samples: [BATCH; 2],
        calibrate: None,
        make: logits,
    },
    Case {
        name: "same-upload",
        model: "MLP on rows of a feature table",
        kind: "same-bytes-again",
        fix: "the table is uploaded once, before the loop",
        samples: [BATCH; 2],
        calibrate: None,
        make: same_upload,
    },
    Case {
        name: "small-batches",
        model: "small MLP with AdamW",
        kind: "launch-bound",
        fix: "a batch of 512 instead of eight of 64",
        samples: SMALL,
        calibrate: None,
        make: small_batches,
    },
];

/// Linear layers with ReLU after each, and a head.
#[derive(Module, Debug)]
struct Mlp {
    layers: Vec<Linear>,
    head: Linear,
}

impl Mlp {
    fn new(width: usize, layers: usize, classes: usize, device: &Device) -> Self {
        let layer = |_| LinearConfig::new(width, width).init(device);
        Self {
            layers: (0..layers).map(layer).collect(),
            head: LinearConfig::new(width, classes).with_bias(false).init(device),
        }
    }

    #[instrument(skip_all)]
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.layers.iter().fold(x, |x, layer| info_span!("layer").in_scope(|| relu(layer.forward(x))));
        self.head.forward(x)
    }
}

/// A model with its optimizer.
struct Trainer {
    model: Option<Mlp>,
    optimizer: ModuleOptimizer,
    loss: CrossEntropyLoss,
}

impl Trainer {
    fn new(width: usize, layers: usize, classes: usize, device: &Device) -> Self {
        Self {
            model: Some(Mlp::new(width, layers, classes, device)),
            optimizer: AdamWConfig::new().init(),
            loss: CrossEntropyLossConfig::new().init(device),
        }
    }

    fn model(&self) -> &Mlp {
        self.model.as_ref().expect("a model")
    }

    #[instrument(skip_all)]
    fn loss(&self, logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        self.loss.forward(logits, labels)
    }

    /// Runs the backward pass and the optimizer.
    fn learn(&mut self, loss: &Tensor<1>) {
        let model = self.model.take().expect("a model");
        let gradients = info_span!("backward").in_scope(|| GradientsParams::from_grads(loss.backward(), &model));
        self.model = Some(info_span!("optimizer").in_scope(|| self.optimizer.step(1e-4, model, gradients)));
    }
}

/// Batches of random numbers and labels that are on the device already, in spans of the name `data`.
fn batches(
    rows: usize,
    width: usize,
    classes: usize,
    device: &Device,
) -> impl Iterator<Item = (Tensor<2>, Tensor<1, Int>)> + use<> {
    let batch = |seed: usize| {
        let labels: Vec<i32> = (0..rows).map(|row| ((row * 7 + seed) % classes) as i32).collect();
        let x = Tensor::random([rows, width], Distribution::Normal(0.0, 1.0), device);
        (x, Tensor::from_data(TensorData::new(labels, [rows]), device))
    };
    let batches: Vec<(Tensor<2>, Tensor<1, Int>)> = (0..4).map(batch).collect();
    data((0..).map(move |step: usize| batches[step % batches.len()].clone()))
}

/// Returns how many of the rows have their highest logit at the label.
fn hits(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1, Int> {
    logits.argmax(1).flatten::<1>(0, 1).equal(labels).int().sum()
}

/// An MLP that reads loss and accuracy in each step, or sums them up on the GPU.
fn metrics(setup: &Setup, variant: Variant) -> Step {
    let device = setup.device.clone();
    let mut trainer = Trainer::new(setup.width(), 4, CLASSES, &device);
    let mut batches = batches(setup.batch(), setup.width(), CLASSES, &device);
    let (mut loss_sum, mut right) = (Tensor::<1>::zeros([1], &device), Tensor::<1, Int>::zeros([1], &device));
    let (mut read, mut step) = (Vec::new(), 0);
    Box::new(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        step += 1;
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits.clone(), labels.clone());
        info_span!("metrics").in_scope(|| {
            let hits = hits(logits, labels);
            if variant == Variant::Fault {
                read.push((loss.clone().into_scalar::<f32>(), hits.into_scalar::<i32>()));
                return;
            }
            loss_sum = loss_sum.clone() + loss.clone().detach();
            right = right.clone() + hits;
            if step % READ_EVERY == 0 {
                read.push((loss_sum.clone().into_scalar::<f32>(), right.clone().into_scalar::<i32>()));
            }
        });
        trainer.learn(&loss);
    })
}

/// An MLP whose images are augmented in the loop, or by workers.
fn augmented(setup: &Setup, variant: Variant) -> Step {
    // With the time of the augmentations as calibrated, two workers would do if they were never interrupted.
    const WORKERS: u64 = 4;
    let device = setup.device.clone();
    let mut trainer = Trainer::new(setup.width(), 4, CLASSES, &device);
    let augmentations = setup.amount;
    let mut load: Box<dyn FnMut() -> Batch> = if variant == Variant::Fault {
        let mut loader = loader(setup, 1);
        Box::new(move || loader.batch(augmentations))
    } else {
        let (sender, receiver) = mpsc::sync_channel(2 * WORKERS as usize);
        for seed in 0..WORKERS {
            let (sender, mut loader) = (sender.clone(), loader(setup, seed));
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            // A worker ends when the receiver is dropped.
            let work = move || while sender.send(loader.batch(augmentations)).is_ok() {};
            std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, work));
        }
        Box::new(move || receiver.recv().expect("a batch"))
    };
    Box::new(move || {
        let _step = info_span!("train_step").entered();
        let (x, labels) = info_span!("next_batch").in_scope(|| load().upload(&device));
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    })
}

fn loader(setup: &Setup, seed: u64) -> Loader {
    // The pixels of an image are the inputs of a layer.
    Loader::new(seed, setup.batch(), setup.width().isqrt(), CLASSES)
}

/// Returns the number of augmentations that take one and a half times as long as a step with data that is ready.
fn augmentations(setup: &Setup) -> Result<usize, Box<dyn Error>> {
    let device = setup.device.clone();
    let mut trainer = Trainer::new(setup.width(), 4, CLASSES, &device);
    let mut loader = loader(setup, 0);
    let batch = loader.batch(1);
    let mut step: Step = Box::new(move || {
        let (x, labels) = batch.clone().upload(&device);
        let loss = trainer.loss(trainer.model().forward(x), labels);
        trainer.learn(&loss);
    });
    crate::mean(setup, &mut step, crate::WARM_UP)?;
    let step_us = crate::mean(setup, &mut step, 30)?;
    let start = std::time::Instant::now();
    (0..4).for_each(|_| drop(loader.batch(1)));
    let augmentation_us = start.elapsed().as_secs_f64() * 1e6 / 4.0;
    Ok((1.5 * step_us / augmentation_us).round().max(1.0) as usize)
}

/// A classifier with many classes that copies its logits to the host, to see how it does on some of the rows.
fn logits(setup: &Setup, variant: Variant) -> Step {
    // The rows that are looked at: few, so that the copy is the fault and not the work of the host after it.
    const SAMPLE: usize = 32;
    // The logits have 32 MiB.
    let (classes, device) = (setup.size(2048, 32), setup.device.clone());
    let mut trainer = Trainer::new(setup.width(), 2, classes, &device);
    let mut batches = batches(setup.batch(), setup.width(), classes, &device);
    let mut right = Tensor::<1, Int>::zeros([1], &device);
    let (mut read, mut step) = (Vec::new(), 0);
    Box::new(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        step += 1;
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits.clone(), labels.clone());
        trainer.learn(&loss);
        let _metrics = info_span!("metrics").entered();
        if variant == Variant::Fault {
            let data = logits.into_data();
            let values = data.as_slice::<f32>().expect("f32");
            let highest = |row: &[f32]| row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            read.push(values.chunks(classes).take(SAMPLE).map(highest).sum::<f32>());
            return;
        }
        right = right.clone() + hits(logits, labels);
        if step % READ_EVERY == 0 {
            read.push(right.clone().into_scalar::<i32>() as f32);
        }
    })
}

/// An MLP that gets the features of each item from a table, which does not change.
fn same_upload(setup: &Setup, variant: Variant) -> Step {
    // The table has 64 MiB.
    let (items, width, batch) = (setup.size(16 << 10, 32), setup.width(), setup.batch());
    let device = setup.device.clone();
    let mut random = Random::new(3);
    let table: Vec<f32> = (0..items * width).map(|_| random.uniform() - 0.5).collect();
    let table = TensorData::new(table, [items, width]);
    let numbers = |random: &mut Random, end: usize| {
        let numbers: Vec<i32> = (0..batch).map(|_| random.below(end) as i32).collect();
        TensorData::new(numbers, [batch])
    };
    let rows: Vec<_> = (0..16).map(|_| (numbers(&mut random, items), numbers(&mut random, CLASSES))).collect();
    let uploaded = (variant == Variant::Fixed).then(|| Tensor::<2>::from_data(table.clone(), &device));
    let mut trainer = Trainer::new(width, 3, CLASSES, &device);
    let mut step = 0;
    Box::new(move || {
        let _step = info_span!("train_step").entered();
        step += 1;
        let (ids, labels) = info_span!("data").in_scope(|| {
            let (ids, labels) = rows[step % rows.len()].clone();
            (Tensor::<1, Int>::from_data(ids, &device), Tensor::<1, Int>::from_data(labels, &device))
        });
        let upload = || uploaded.clone().unwrap_or_else(|| Tensor::from_data(table.clone(), &device));
        let table = info_span!("features").in_scope(upload);
        let x = info_span!("lookup").in_scope(|| table.select(0, ids));
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    })
}

/// A small MLP, of which the host launches kernels for longer than the GPU computes.
fn small_batches(setup: &Setup, variant: Variant) -> Step {
    let width = setup.size(512, 16);
    let mut trainer = Trainer::new(width, 4, CLASSES, &setup.device);
    let mut batches = batches(setup.size(SMALL[variant as usize], 4), width, CLASSES, &setup.device);
    Box::new(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    })
}
