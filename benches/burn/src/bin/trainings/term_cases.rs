//! Trainings with more than a model: several losses that are weighed against each other, or patterns to look up.

use crate::{
    cases::{CLASSES, Result, Setup, Sizes, Step, forever},
    models::{Mlp, Trainer},
};
use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig,
        loss::{MseLoss, Reduction},
    },
    tensor::{
        Device, Distribution, Int, Tensor, TensorData,
        activation::{relu, softmax},
    },
};
use kernspan_burn::data;
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant};

/// A model of a physical field with a loss inside of it, at its borders, at its start, and at sensors. A loss weighs as
/// much as its share of the sum of all: the host reads them to compute that, or the GPU does.
pub(crate) fn weighed(setup: &Setup, variant: Variant) -> Result<Step> {
    const TERMS: usize = 4;
    let (batch, width, device) = (setup.batch(), setup.width(), setup.device.clone());
    let normal = |columns: usize| Tensor::<2>::random([batch, columns], Distribution::Normal(0.0, 1.0), &device);
    let points: Vec<[Tensor<2>; 2]> = (0..TERMS).map(|_| [normal(width), normal(CLASSES)]).collect();
    let mut trainer = Trainer::new(Mlp::new(width, 3, CLASSES, &device), &device);
    let mut weights = vec![0.0; TERMS];
    Ok(forever(move || {
        let _step = info_span!("train_step").entered();
        let mut terms = Vec::new();
        for ([x, wanted], weight) in points.iter().zip(&mut weights) {
            let field = trainer.model().forward(x.clone());
            let term = info_span!("term").in_scope(|| MseLoss::new().forward(field, wanted.clone(), Reduction::Mean));
            if variant == Variant::Fault {
                *weight = info_span!("weigh").in_scope(|| term.clone().into_scalar::<f32>());
            }
            terms.push(term);
        }
        let loss = info_span!("loss").in_scope(|| {
            let weighed: Vec<Tensor<1>> = if variant == Variant::Fault {
                let sum: f32 = weights.iter().sum();
                terms.into_iter().zip(&weights).map(|(term, weight)| term * (*weight / sum)).collect()
            } else {
                let shares: Vec<Tensor<1>> = terms.iter().map(|term| term.clone().detach()).collect();
                let sum = shares.iter().cloned().reduce(|sum, share| sum + share).expect("a term");
                terms.into_iter().zip(shares).map(|(term, share)| term * (share / sum.clone())).collect()
            };
            weighed.into_iter().reduce(|sum, term| sum + term).expect("a term")
        });
        trainer.learn(&loss);
    }))
}

/// Layers, and a head on what the patterns say that are most similar to the result of the layers.
#[derive(Module, Debug)]
struct Associative {
    layers: Vec<Linear>,
    head: Linear,
}

impl Associative {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            layers: (0..3).map(|_| LinearConfig::new(width, width).init(device)).collect(),
            head: LinearConfig::new(width, CLASSES).with_bias(false).init(device),
        }
    }

    #[instrument(skip_all)]
    fn forward(&self, x: Tensor<2>, patterns: Tensor<2>) -> Tensor<2> {
        let x = self.layers.iter().fold(x, |x, layer| info_span!("layer").in_scope(|| relu(layer.forward(x))));
        let found = info_span!("look_up").in_scope(|| {
            let [_, width] = x.dims();
            let similarities = x.clone().matmul(patterns.clone().transpose()) / (width as f32).sqrt();
            softmax(similarities, 1).matmul(patterns)
        });
        self.head.forward(x + found)
    }
}

/// A Hopfield network, whose patterns do not change. They are copied to the GPU in each step, or once.
pub(crate) fn associated(setup: &Setup, variant: Variant) -> Result<Step> {
    // The patterns have 16 MiB.
    let (patterns, samples) = (setup.size(4096, 16), setup.size(16 << 10, 32));
    let (batch, width, device) = (setup.batch(), setup.width(), setup.device.clone());
    let mut random = Random::new(87);
    let stored: Vec<f32> = (0..patterns * width).map(|_| random.uniform() - 0.5).collect();
    let stored = TensorData::new(stored, [patterns, width]);
    let uploaded = (variant == Variant::Fixed).then(|| Tensor::<2>::from_data(stored.clone(), &device));
    let rows = Tensor::<2>::random([samples, width], Distribution::Normal(0.0, 1.0), &device);
    let mut batches = {
        let device = device.clone();
        data(std::iter::repeat_with(move || {
            let mut numbers = |end: usize| {
                let numbers: Vec<i32> = (0..batch).map(|_| random.below(end) as i32).collect();
                Tensor::<1, Int>::from_data(TensorData::new(numbers, [batch]), &device)
            };
            let (ids, labels) = (numbers(samples), numbers(CLASSES));
            (rows.clone().select(0, ids), labels)
        }))
    };
    let mut trainer = Trainer::new(Associative::new(width, &device), &device);
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        let upload = || uploaded.clone().unwrap_or_else(|| Tensor::from_data(stored.clone(), &device));
        let patterns = info_span!("patterns").in_scope(upload);
        let logits = trainer.model().forward(x, patterns);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }))
}
