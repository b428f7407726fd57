//! Trainings that measure something in each step: how long layers take, how good predictions are, how hard samples are.

use crate::{
    calibration::repetitions,
    cases::{CLASSES, FORECASTS, Result, Setup, Sizes, Step, forever},
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
use std::time::{Duration, Instant};
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant};

/// The steps between two measurements. The fiftieth step may be a recorded one, the hundredth is not.
const MEASURE_EVERY: usize = 100;

/// Linear layers with a residual connection around each, and a head.
#[derive(Module, Debug)]
struct Deep {
    layers: Vec<Linear>,
    head: Linear,
}

impl Deep {
    fn new(width: usize, layers: usize, device: &Device) -> Self {
        Self {
            layers: (0..layers).map(|_| LinearConfig::new(width, width).init(device)).collect(),
            head: LinearConfig::new(width, CLASSES).with_bias(false).init(device),
        }
    }

    #[instrument(skip_all)]
    fn forward(&self, x: Tensor<2>, watch: &mut Stopwatch) -> Tensor<2> {
        let layer = |x: Tensor<2>, layer: &Linear| {
            let _layer = info_span!("layer").entered();
            let x = x.clone() + relu(layer.forward(x));
            watch.lap();
            x
        };
        let x = self.layers.iter().fold(x, layer);
        self.head.forward(x)
    }
}

/// Times parts of a step. To know when the GPU has done a part, it waits for that.
struct Stopwatch {
    device: Device,
    runs: bool,
    start: Instant,
    laps: Vec<Duration>,
}

impl Stopwatch {
    fn start(&mut self, runs: bool) {
        self.runs = runs;
        self.start = Instant::now();
        if runs {
            self.laps.clear();
        }
    }

    fn lap(&mut self) {
        if self.runs {
            self.device.sync().expect("a device without errors");
            self.laps.push(self.start.elapsed());
        }
    }
}

/// A residual MLP that times its layers, the backward pass and the optimizer: in each step, or now and then.
pub(crate) fn timed(setup: &Setup, variant: Variant) -> Result<Step> {
    let (width, batch, device) = (setup.width(), setup.batch(), setup.device.clone());
    let mut trainer = Trainer::new(Deep::new(width, setup.size(10, 2), &device), &device);
    let mut batches = batches([batch, width], CLASSES, &device);
    let mut watch = Stopwatch { device, runs: false, start: Instant::now(), laps: Vec::new() };
    let mut step = 0;
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        step += 1;
        watch.start(variant == Variant::Fault || step % MEASURE_EVERY == 0);
        let logits = trainer.model().forward(x, &mut watch);
        let loss = trainer.loss(logits, labels);
        let gradients = trainer.gradients(&loss);
        watch.lap();
        trainer.update(gradients);
        watch.lap();
    }))
}

/// A model that maps the weather at points of a grid to that of the next day.
#[derive(Module, Debug)]
struct Forecast {
    first: Linear,
    rest: Mlp,
}

/// A forecast with its error and its correlation with the weather: computed on the host, which gets all forecasts and
/// the weather, or on the GPU.
pub(crate) fn scored(setup: &Setup, variant: Variant) -> Result<Step> {
    // Forecasts have 8 MiB, and so has the weather.
    let (batch, points, device) = (setup.size(FORECASTS, 4), setup.size(2048, 16), &setup.device);
    let (width, fault) = (setup.width(), variant == Variant::Fault);
    let model =
        Forecast { first: LinearConfig::new(points, width).init(device), rest: Mlp::new(width, 4, points, device) };
    let mut trainer = Trainer::new(model, device);
    let mut batches = batches([2 * batch, points], CLASSES, device);
    let mut sums = Tensor::<1>::zeros([5], device);
    let (mut scores, mut step) = (Vec::new(), 0);
    Ok(forever(move || {
        let (days, _) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        step += 1;
        let (today, tomorrow) = (days.clone().slice(0..batch), days.slice(batch..2 * batch));
        let x = info_span!("first").in_scope(|| relu(trainer.model().first.forward(today)));
        let forecast = trainer.model().rest.forward(x);
        let loss =
            info_span!("loss").in_scope(|| MseLoss::new().forward(forecast.clone(), tomorrow.clone(), Reduction::Mean));
        trainer.learn(&loss);
        let _scores = info_span!("scores").entered();
        let count = (batch * points) as f32;
        if fault {
            let (forecast, tomorrow) = (forecast.into_data(), tomorrow.into_data());
            let values = (forecast.as_slice::<f32>().expect("f32"), tomorrow.as_slice::<f32>().expect("f32"));
            scores.push(score(host_sums(values.0, values.1), count));
            return;
        }
        sums = sums.clone() + device_sums(forecast.detach(), tomorrow);
        if step % MEASURE_EVERY == 0 {
            let read = sums.clone().into_data().try_to_vec::<f32>().expect("f32");
            scores.push(score([read[0], read[1], read[2], read[3], read[4]], count * MEASURE_EVERY as f32));
            sums = sums.zeros_like();
        }
    }))
}

/// Returns the sums of forecasts, of observations, of their squares, and of their products.
fn host_sums(forecast: &[f32], observed: &[f32]) -> [f32; 5] {
    let mut sums = [0.0; 5];
    for (forecast, observed) in forecast.chunks(256).zip(observed.chunks(256)) {
        // A sum of few numbers first, as a sum of millions would lose digits.
        let mut part = [0.0; 5];
        for (x, y) in forecast.iter().zip(observed) {
            let terms = [*x, *y, x * x, y * y, x * y];
            part.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    sums
}

fn device_sums(x: Tensor<2>, y: Tensor<2>) -> Tensor<1> {
    let (squares, products) = ([x.clone().square(), y.clone().square()], x.clone() * y.clone());
    let [x_squares, y_squares] = squares.map(Tensor::sum);
    Tensor::cat(vec![x.sum(), y.sum(), x_squares, y_squares, products.sum()], 0)
}

/// Returns the root of the mean square error, and the correlation.
fn score([x, y, x_squares, y_squares, products]: [f32; 5], count: f32) -> [f32; 2] {
    let error = ((x_squares - 2.0 * products + y_squares) / count).sqrt();
    let variance = |sum: f32, squares: f32| squares / count - (sum / count).powi(2);
    let covariance = products / count - x * y / count.powi(2);
    [error, covariance / (variance(x, x_squares) * variance(y, y_squares)).sqrt()]
}

/// A classifier that sees easy samples first. All samples are sorted in each step, or now and then.
pub(crate) fn sorted(setup: &Setup, variant: Variant) -> Result<Step> {
    let mut curriculum = Curriculum::new(setup, setup.amount);
    let mut train = curriculum_model(setup);
    let mut step = 0;
    Ok(forever(move || {
        let _step = info_span!("train_step").entered();
        if variant == Variant::Fault || step % MEASURE_EVERY == 0 {
            curriculum.sort();
        }
        step += 1;
        train(curriculum.batch());
    }))
}

/// Returns the levels of noise with which sorting takes longer than the rest of a step.
pub(crate) fn levels(setup: &Setup) -> Result<usize> {
    const LEVELS: usize = 4;
    let (mut train, mut curriculum) = (curriculum_model(setup), Curriculum::new(setup, LEVELS));
    let batch = curriculum.batch();
    let sorts = repetitions(setup, 1.3, forever(move || train(batch.clone())), || curriculum.sort())?;
    Ok((LEVELS as f64 * sorts).round().max(1.0) as usize)
}

/// The stored rows that samples are made of, by noise.
fn rows(setup: &Setup) -> usize {
    setup.size(16 << 10, 32)
}

/// Samples, and how hard they are.
struct Curriculum {
    random: Random,
    levels: usize,
    difficulties: Vec<f32>,
    /// The numbers of samples, the easiest first.
    order: Vec<u32>,
    batch: usize,
}

impl Curriculum {
    fn new(setup: &Setup, levels: usize) -> Self {
        let mut random = Random::new(71);
        let samples = rows(setup) * levels;
        let difficulties = (0..samples).map(|sample| random.uniform() + (sample % levels) as f32 * 0.1).collect();
        Self { random, levels, difficulties, order: (0..samples as u32).collect(), batch: setup.batch() }
    }

    #[instrument(name = "sort_samples", skip_all)]
    fn sort(&mut self) {
        let difficulty = |sample: &u32| self.difficulties[*sample as usize];
        // By number first: samples that have the same difficulty keep their order.
        self.order = (0..self.difficulties.len() as u32).collect();
        self.order.sort_by(|one, other| difficulty(one).total_cmp(&difficulty(other)));
    }

    /// Returns the rows of a batch, with the noise of each, from the easier half. What was seen is easier afterwards.
    fn batch(&mut self) -> (TensorData, TensorData) {
        let (mut rows, mut noise) = (Vec::with_capacity(self.batch), Vec::with_capacity(self.batch));
        for _ in 0..self.batch {
            let sample = self.order[self.random.below(self.order.len() / 2)] as usize;
            self.difficulties[sample] *= 0.99;
            rows.push((sample / self.levels) as i32);
            noise.push((sample % self.levels) as f32 / self.levels as f32);
        }
        (TensorData::new(rows, [self.batch]), TensorData::new(noise, [self.batch, 1]))
    }
}

/// Returns a step of the classifier, which gets rows and their noise.
fn curriculum_model(setup: &Setup) -> impl FnMut((TensorData, TensorData)) + use<> {
    let (width, batch, device) = (setup.width(), setup.batch(), setup.device.clone());
    let stored = Tensor::<2>::random([rows(setup), width], Distribution::Normal(0.0, 1.0), &device);
    let labels: Vec<i32> = (0..batch).map(|row| (row % CLASSES) as i32).collect();
    let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [batch]), &device);
    let mut trainer = Trainer::new(Mlp::new(width, 4, CLASSES, &device), &device);
    move |(rows, levels)| {
        let x = info_span!("lookup").in_scope(|| {
            let rows = Tensor::<1, Int>::from_data(rows, &device);
            let levels = Tensor::<2>::from_data(levels, &device);
            let noise = Tensor::random([batch, width], Distribution::Normal(0.0, 1.0), &device);
            stored.clone().select(0, rows) + noise * levels
        });
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels.clone());
        trainer.learn(&loss);
    }
}
