//! Trainings whose layers are where they should not be: on the host, or in many parts.

use crate::{
    cases::{FRAMES, Result, Setup, Sizes, Step, forever},
    models::{Mlp, Trainer, batches},
};
use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig,
        loss::{MseLoss, Reduction},
    },
    tensor::{Device, Distribution, Int, Tensor, TensorData, activation::relu},
};
use kernspan_burn::data;
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant};

/// A student that learns the features of a teacher, which is not trained. The teacher's weights are copied to the GPU
/// when a layer needs them, or they are there.
pub(crate) fn distilled(setup: &Setup, variant: Variant) -> Result<Step> {
    // The weights of a layer have 4 MiB.
    const LAYERS: usize = 4;
    let (width, batch, device) = (setup.width(), setup.batch(), setup.device.clone());
    let samples = setup.size(16 << 10, 32);
    let mut random = Random::new(81);
    let scale = (12.0 / width as f32).sqrt();
    let mut layer = || {
        let weights: Vec<f32> = (0..width * width).map(|_| (random.uniform() - 0.5) * scale).collect();
        TensorData::new(weights, [width, width])
    };
    let teacher =
        Teacher { offloaded: (0..LAYERS).map(|_| layer()).collect(), loaded: Vec::new(), device: device.clone() };
    let teacher = if variant == Variant::Fault { teacher } else { teacher.load() };
    let mut trainer = Trainer::new(Mlp::new(width, 4, width, &device), &device);
    let stored = Tensor::<2>::random([samples, width], Distribution::Normal(0.0, 1.0), &device);
    let mut batches = data(std::iter::repeat_with(move || {
        let ids: Vec<i32> = (0..batch).map(|_| random.below(samples) as i32).collect();
        let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [batch]), &device);
        stored.clone().select(0, ids)
    }));
    Ok(forever(move || {
        let x = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        let wanted = teacher.features(x.clone());
        let features = info_span!("student").in_scope(|| trainer.model().forward(x));
        let loss = info_span!("loss").in_scope(|| MseLoss::new().forward(features, wanted, Reduction::Mean));
        trainer.learn(&loss);
    }))
}

/// Layers whose weights are on the host, or on the GPU.
struct Teacher {
    offloaded: Vec<TensorData>,
    loaded: Vec<Tensor<2>>,
    device: Device,
}

impl Teacher {
    /// Copies all weights to the GPU.
    fn load(mut self) -> Self {
        self.loaded = self.offloaded.drain(..).map(|weights| Tensor::from_data(weights, &self.device)).collect();
        self
    }

    #[instrument(name = "teacher", skip_all)]
    fn features(&self, x: Tensor<2>) -> Tensor<2> {
        let layer = |x: Tensor<2>, weights: Tensor<2>| relu(x.matmul(weights));
        let offloaded = self.offloaded.iter().map(|weights| Tensor::from_data(weights.clone(), &self.device));
        offloaded.chain(self.loaded.iter().cloned()).fold(x, layer)
    }
}

/// The codes of a frame of sound, one from each codebook.
const CODEBOOKS: usize = 8;

/// Layers that all codes of a frame share, and a head for each codebook, or one for all.
#[derive(Module, Debug)]
struct Codec {
    layers: Vec<Linear>,
    heads: Vec<Linear>,
}

impl Codec {
    /// Makes heads, each with this many outputs.
    fn new(width: usize, heads: usize, outputs: usize, device: &Device) -> Self {
        let linear = |outputs: usize| LinearConfig::new(width, outputs).with_bias(false).init(device);
        Self { layers: (0..3).map(|_| linear(width)).collect(), heads: (0..heads).map(|_| linear(outputs)).collect() }
    }

    #[instrument(skip_all)]
    fn features(&self, x: Tensor<2>) -> Tensor<2> {
        self.layers.iter().fold(x, |x, layer| info_span!("layer").in_scope(|| relu(layer.forward(x))))
    }
}

/// A model of sound that predicts a code of each codebook: one codebook after the other, or all of them at once.
pub(crate) fn codebooks(setup: &Setup, variant: Variant) -> Result<Step> {
    let (frames, width, codes) = (setup.size(FRAMES, 4), setup.width(), setup.size(256, 8));
    let device = &setup.device;
    let mut random = Random::new(82);
    let wanted: Vec<i32> = (0..frames * CODEBOOKS).map(|_| random.below(codes) as i32).collect();
    let wanted = Tensor::<2, Int>::from_data(TensorData::new(wanted, [frames, CODEBOOKS]), device);
    let all = wanted.clone().reshape([frames * CODEBOOKS]);
    let of_codebook = |index: usize| wanted.clone().slice([0..frames, index..index + 1]).reshape([frames]);
    let by_codebook: Vec<Tensor<1, Int>> = (0..CODEBOOKS).map(of_codebook).collect();
    let model = match variant {
        Variant::Fault => Codec::new(width, CODEBOOKS, codes, device),
        Variant::Fixed => Codec::new(width, 1, CODEBOOKS * codes, device),
    };
    let mut trainer = Trainer::new(model, device);
    let mut batches = batches([frames, width], codes, device);
    Ok(forever(move || {
        let (x, _) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        let features = trainer.model().features(x);
        let heads = &trainer.model().heads;
        let loss = if let [head] = &heads[..] {
            let logits = info_span!("head").in_scope(|| head.forward(features));
            trainer.loss(logits.reshape([frames * CODEBOOKS, codes]), all.clone())
        } else {
            let losses = heads.iter().zip(&by_codebook).map(|(head, wanted)| {
                let logits = info_span!("head").in_scope(|| head.forward(features.clone()));
                trainer.loss(logits, wanted.clone())
            });
            losses.reduce(|sum, loss| sum + loss).expect("a codebook") / CODEBOOKS as f32
        };
        trainer.learn(&loss);
    }))
}
