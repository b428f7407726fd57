use crate::{Profiled, data::waiting};
use burn::{
    data::{
        dataloader::{DataLoader, DataLoaderIterator, Progress},
        dataset::DatasetError,
    },
    tensor::Device,
};
use std::sync::Arc;
use tracing::span::EnteredSpan;

/// A loader of training data that makes each turn of the loop two spans: `data`, the wait for the batch, and then
/// [`Profiled::ITERATION`], all that is done with it.
///
/// An iteration ends when the next batch is asked for, or the iterator is dropped, and so does the profiler's step, if it is built with
/// `.step_on(Profiled::ITERATION)`. Hence gradients may be accumulated over several steps. It does as well in a loop of your own:
///
/// ```
/// # use burn::{data::{dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher}, dataset::InMemDataset}, tensor::Device};
/// use kernspan::{Profiler, Schedule};
/// use kernspan_burn::{Profiled, training};
/// use tracing_subscriber::prelude::*;
///
/// # struct Sum;
/// # impl Batcher<i32, i32> for Sum { fn batch(&self, items: Vec<i32>, _: &Device) -> i32 { items.into_iter().sum() } }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (layer, profiler) = Profiler::builder()
///     .schedule(Schedule::new().wait(1).warmup(1).active(3).repeat(1))
///     .step_on(Profiled::ITERATION)
///     .build()?;
/// tracing_subscriber::registry().with(layer).init();
///
/// let loader = DataLoaderBuilder::new(Sum).batch_size(2).build(InMemDataset::new((0..16).collect()));
/// for batch in training(loader).iter() { // was loader.iter()
///     let batch = batch?;
///     // forward, backward, optimizer
/// }
/// assert_eq!(profiler.finish()?.steps().times().len(), 3);
/// # Ok(())
/// # }
/// ```
///
/// With burn-train's `SupervisedTraining`, wrap both loaders and the model, and keep its logger from being the subscriber. Everything else
/// is Burn's: metrics, checkpoints, early stopping, the schedule of the learning rate, interruption.
///
/// ```
/// # use burn::{data::{dataloader::{DataLoaderBuilder, batcher::Batcher}, dataset::InMemDataset}, lr_scheduler::constant::ConstantLr};
/// # use burn::{module::Module, nn::{Linear, LinearConfig, loss::{MseLoss, Reduction}}, optim::SgdConfig, tensor::{Device, Tensor}};
/// use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
/// # use burn::train::renderer::CliMetricsRenderer;
/// use kernspan_burn::{Profiled, backward, training, validation};
///
/// # #[derive(Module, Debug)]
/// # struct Model { linear: Linear }
/// # impl Model {
/// #     fn forward(&self, x: Tensor<2>) -> RegressionOutput {
/// #         let (output, targets) = (self.linear.forward(x.clone()), x.sum_dim(1));
/// #         RegressionOutput::new(MseLoss::new().forward(output.clone(), targets.clone(), Reduction::Mean), output, targets)
/// #     }
/// # }
/// impl TrainStep for Model {
///     type Input = Tensor<2>;
///     type Output = RegressionOutput;
///
///     fn step(&self, x: Tensor<2>) -> TrainOutput<RegressionOutput> {
///         let output = self.forward(x);
///         TrainOutput::new(self, backward(&output.loss), output) // was output.loss.backward()
///     }
/// }
/// # impl InferenceStep for Model {
/// #     type Input = Tensor<2>;
/// #     type Output = RegressionOutput;
/// #     fn step(&self, x: Tensor<2>) -> RegressionOutput { self.forward(x) }
/// # }
/// # struct Rows;
/// # impl Batcher<f32, Tensor<2>> for Rows {
/// #     fn batch(&self, rows: Vec<f32>, device: &Device) -> Tensor<2> {
/// #         Tensor::<1>::from_floats(rows.as_slice(), device).reshape([rows.len(), 1])
/// #     }
/// # }
///
/// # let loader = || DataLoaderBuilder::new(Rows).batch_size(2).build(InMemDataset::new(vec![1.0, 2.0, 3.0, 4.0]));
/// # let (train, valid) = (loader(), loader());
/// # let directory = tempfile::tempdir().unwrap();
/// # let model = Model { linear: LinearConfig::new(1, 1).init(&Device::flex().autodiff()) };
/// # let (optimizer, rate) = (SgdConfig::new().init(), ConstantLr::new(0.01));
/// let result = SupervisedTraining::new(&directory, training(train), validation(valid)) // was train, valid
///     .with_application_logger(None)
///     .num_epochs(2)
/// #   .renderer(Box::new(CliMetricsRenderer::new()))
///     .launch(Learner::new(Profiled::new(model), optimizer, rate)); // was model
/// let model = result.model.into_inner();
/// ```
///
/// # Burn's logger
///
/// When a training starts, Burn installs a subscriber of its own, which writes `experiment.log`, unless there is one. So install yours first,
/// with `init()`: Burn then says to `log` that it could not, and goes on. `.with_application_logger(None)` spares it the attempt. Where
/// Burn's is first, `init()` panics, as there is one already.
///
/// What Burn would have written is in the trace, as events. For a file of it put a layer of `tracing_subscriber::fmt` beside kernspan's.
///
/// # Several devices
///
/// Burn gives each device a share of the data, and each has its `data` spans. What the first share does are the iterations, so that there is
/// one a turn: on the thread of the loop with `ExecutionStrategy::multi`, where training steps are on the threads of the devices, and on
/// the first device's thread with `ExecutionStrategy::ddp` (which has not been tried). Shares that outlast the first are in no iteration.
pub fn training<B: 'static>(loader: Arc<dyn DataLoader<B>>) -> Arc<dyn DataLoader<B>> {
    Arc::new(Loader { loader, role: Role::Training })
}

/// A loader of validation data that makes all that is done with it a span, [`Profiled::VALIDATION`], and each wait for a batch a span in
/// it, `data`.
///
/// Nothing of it ends a step, so it lengthens the step that it is in, which is the first of the next epoch. See [`training`] for how it is used.
pub fn validation<B: 'static>(loader: Arc<dyn DataLoader<B>>) -> Arc<dyn DataLoader<B>> {
    Arc::new(Loader { loader, role: Role::Validation })
}

/// What the batches are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Training,
    /// On another device than the first.
    Share,
    Validation,
}

struct Loader<B> {
    loader: Arc<dyn DataLoader<B>>,
    role: Role,
}

struct Batches<'a, B> {
    batches: Box<dyn DataLoaderIterator<B> + 'a>,
    role: Role,
    /// The iteration, or the validation.
    open: Option<EnteredSpan>,
}

impl<B: 'static> DataLoader<B> for Loader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B> + 'a> {
        let open = (self.role == Role::Validation).then(|| tracing::info_span!(Profiled::VALIDATION).entered());
        Box::new(Batches { batches: self.loader.iter(), role: self.role, open })
    }

    fn num_items(&self) -> usize {
        self.loader.num_items()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<B>> {
        Arc::new(Self { loader: self.loader.to_device(device), role: self.role })
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B>> {
        let role = if self.role == Role::Training && start > 0 { Role::Share } else { self.role };
        Arc::new(Self { loader: self.loader.slice(start, end), role })
    }
}

impl<B> Iterator for Batches<'_, B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.role != Role::Training {
            return waiting(|| self.batches.next());
        }
        self.open = None;
        let batch = waiting(|| self.batches.next());
        if let Some(Ok(_)) = batch {
            self.open = Some(tracing::info_span!(Profiled::ITERATION).entered());
        }
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.batches.size_hint()
    }
}

impl<B> DataLoaderIterator<B> for Batches<'_, B> {
    fn progress(&self) -> Progress {
        self.batches.progress()
    }
}
