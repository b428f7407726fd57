//! Trainings in which the GPU waits for the host.

use crate::{
    cases::{Burn, CLASSES, Result, SEQUENCES, Setup, Sizes, Step, forever},
    encoder::Encoder,
    models::{Mlp, Trainer, batches},
};
use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{
        Linear, LinearConfig,
        gru::{Gru, GruConfig},
        loss::{MseLoss, Reduction},
    },
    optim::GradientsParams,
    tensor::{Device, Tensor, TensorData},
};
use std::{
    fmt::Write,
    sync::{Arc, mpsc},
    time::Instant,
};
use tracing::{info_span, instrument};
use trainings_runner::{Framework, Random, Variant};

/// The steps between two reads of a metric. The fiftieth step may be a recorded one, the hundredth is not.
const READ_EVERY: usize = 100;

/// Computes the square of the norm of each parameter's gradient.
struct SquareNorms<'a> {
    gradients: &'a GradientsParams,
    norms: Vec<Tensor<1>>,
}

impl ModuleVisitor for SquareNorms<'_> {
    fn visit_float<const D: usize>(&mut self, parameter: &Param<Tensor<D>>) {
        self.norms.extend(self.gradients.get::<D>(parameter.id).map(|gradient| gradient.square().sum()));
    }
}

/// A transformer that logs the norm of each parameter's gradient in each step, or sums them up on the GPU.
pub(crate) fn gradient_norms(setup: &Setup, variant: Variant) -> Result<Step> {
    let mut trainer = Trainer::new(Encoder::new(setup), &setup.device);
    let mut batches = batches(Encoder::shape(setup), CLASSES, &setup.device);
    let mut sums: Vec<Tensor<1>> = Vec::new();
    let mut log: Vec<f32> = Vec::new();
    let mut step = 0;
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        step += 1;
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        let gradients = trainer.gradients(&loss);
        info_span!("log_gradient_norms").in_scope(|| {
            let mut visitor = SquareNorms { gradients: &gradients, norms: Vec::new() };
            trainer.model().visit(&mut visitor);
            log.clear();
            if variant == Variant::Fault {
                log.extend(visitor.norms.into_iter().map(|norm| norm.into_scalar::<f32>().sqrt()));
                return;
            }
            if sums.is_empty() {
                sums = visitor.norms;
            } else {
                sums = sums.drain(..).zip(visitor.norms).map(|(sum, norm)| sum + norm).collect();
            }
            if step % READ_EVERY == 0 {
                log.extend(sums.drain(..).map(|sum| (sum.into_scalar::<f32>() / READ_EVERY as f32).sqrt()));
            }
        });
        trainer.update(gradients);
    }))
}

/// A recurrent layer and a head on its last state.
#[derive(Module, Debug)]
struct Recurrent {
    layer: Gru,
    head: Linear,
}

impl Recurrent {
    fn new(width: usize, device: &Device) -> Self {
        Self {
            layer: GruConfig::new(width, width, true).init(device),
            head: LinearConfig::new(width, CLASSES).init(device),
        }
    }

    #[instrument(skip_all)]
    fn forward(&self, x: Tensor<3>) -> Tensor<2> {
        let [sequences, length, width] = x.dims();
        let states = info_span!("gru").in_scope(|| self.layer.forward(x, None));
        let last = states.slice([0..sequences, length - 1..length, 0..width]).reshape([sequences, width]);
        info_span!("head").in_scope(|| self.head.forward(last))
    }
}

/// A recurrent network, whose kernels are short and follow from each other.
pub(crate) fn recurrent(setup: &Setup, variant: Variant) -> Result<Step> {
    let (width, length) = (setup.size(256, 8), setup.size(16, 3));
    let sequences = setup.size(SEQUENCES[variant as usize], 2);
    let mut trainer = Trainer::new(Recurrent::new(width, &setup.device), &setup.device);
    let mut batches = batches([sequences, length, width], CLASSES, &setup.device);
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }))
}

/// Rows that the autoencoder sees, on the host.
type Rows = Arc<Vec<Vec<f32>>>;

/// Writes the log of a step.
type Log = Box<dyn FnMut(usize, &Rows)>;

/// An autoencoder that writes a line about each sample to a log, in the loop or on another thread.
pub(crate) fn logged(setup: &Setup, variant: Variant) -> Result<Step> {
    let values = setup.amount;
    let mut log: Log = if variant == Variant::Fault {
        let mut lines = String::new();
        Box::new(move |step, rows| write_lines(&mut lines, step, rows, values))
    } else {
        let (sender, receiver) = mpsc::sync_channel::<(usize, Rows)>(8);
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        // The thread ends when the sender is dropped.
        let write = move || {
            let mut lines = String::new();
            receiver.into_iter().for_each(|(step, rows)| write_lines(&mut lines, step, &rows, values));
        };
        std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, write));
        Box::new(move |step, rows| sender.send((step, Arc::clone(rows))).expect("a thread that writes"))
    };
    let rows = samples(setup);
    let mut train = autoencoder(setup, &rows);
    let mut step = 0;
    Ok(forever(move || {
        let _step = info_span!("train_step").entered();
        log(step, &rows);
        train();
        step += 1;
    }))
}

/// Returns the number of values of a sample that take four fifths of a step to log: a thread can keep up with that.
pub(crate) fn logged_values(setup: &Setup) -> Result<usize> {
    const VALUES: usize = 8;
    let rows = samples(setup);
    let mut step = forever(autoencoder(setup, &rows));
    trainings_runner::mean(setup, &mut step, Burn::WARM_UP)?;
    let step_us = trainings_runner::mean(setup, &mut step, 30)?;
    let mut lines = String::new();
    let start = Instant::now();
    (0..4).for_each(|step| write_lines(&mut lines, step, &rows, VALUES));
    let write_us = start.elapsed().as_secs_f64() * 1e6 / 4.0;
    Ok(((VALUES as f64 * 0.8 * step_us / write_us) as usize).clamp(1, setup.width()))
}

fn samples(setup: &Setup) -> Rows {
    let mut random = Random::new(5);
    Arc::new((0..setup.batch()).map(|_| (0..setup.width()).map(|_| random.uniform()).collect()).collect())
}

/// Returns a step of the autoencoder. Its samples are on the GPU.
fn autoencoder(setup: &Setup, rows: &Rows) -> impl FnMut() + use<> {
    let (batch, width) = (setup.batch(), setup.width());
    let x = Tensor::<2>::from_data(TensorData::new(rows.concat(), [batch, width]), &setup.device);
    let mut trainer = Trainer::new(Mlp::new(width, 4, width, &setup.device), &setup.device);
    move || {
        let decoded = trainer.model().forward(x.clone());
        let loss = info_span!("loss").in_scope(|| MseLoss::new().forward(decoded, x.clone(), Reduction::Mean));
        trainer.learn(&loss);
    }
}

/// Formats a line for each sample, with the first of its values and their mean.
#[instrument(name = "write_log", skip_all)]
fn write_lines(lines: &mut String, step: usize, rows: &[Vec<f32>], values: usize) {
    lines.clear();
    for (index, row) in rows.iter().enumerate() {
        let values = &row[..values.min(row.len())];
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        write!(lines, "{{\"step\":{step},\"sample\":{index},\"mean\":{mean:.4},\"values\":[").expect("memory");
        values.iter().for_each(|value| write!(lines, "{value:.4},").expect("memory"));
        lines.push_str("]}\n");
    }
    // The file that lines go to is no part of the case: how fast a disk is differs too much.
    std::hint::black_box(&lines);
}
