use crate::{Data, profiled::Profiled};
use burn::{
    data::{
        dataloader::{DataLoader, DataLoaderIterator, Progress},
        dataset::DatasetError,
    },
    tensor::Device,
};
use std::sync::Arc;
use tracing::span::EnteredSpan;

/// Wraps a loader of training data so that each iteration of the loop is two spans: `data`, the wait for the batch, and
/// [`Profiled::ITERATION`], the work on it.
///
/// An iteration ends when the next batch is requested or the iterator is dropped. With `.step_on(Profiled::ITERATION)`
/// the profiler's step ends with it, whether or not the optimizer was called. In your own loop:
///
/// ```
/// # use burn::data::{dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher}, dataset::InMemDataset};
/// # use burn::tensor::Device;
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
/// assert_eq!(profiler.finish()?.steps().count(), 3);
/// # Ok(())
/// # }
/// ```
///
/// With burn-train's `SupervisedTraining`, wrap both loaders and the model, and turn off its logger. Metrics,
/// checkpoints, early stopping, the learning rate schedule and interruption work as before.
///
/// ```
/// # use burn::data::{dataloader::{DataLoaderBuilder, batcher::Batcher}, dataset::InMemDataset};
/// # use burn::{lr_scheduler::constant::ConstantLr, optim::SgdConfig, tensor::{Device, Tensor}};
/// # use burn::{module::Module, nn::{Linear, LinearConfig, loss::{MseLoss, Reduction}}};
/// use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
/// # use burn::train::renderer::CliMetricsRenderer;
/// use kernspan_burn::{Profiled, backward, training, validation};
///
/// # #[derive(Module, Debug)]
/// # struct Model { linear: Linear }
/// # impl Model {
/// #     fn forward(&self, x: Tensor<2>) -> RegressionOutput {
/// #         let (output, targets) = (self.linear.forward(x.clone()), x.sum_dim(1));
/// #         let loss = MseLoss::new().forward(output.clone(), targets.clone(), Reduction::Mean);
/// #         RegressionOutput::new(loss, output, targets)
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
/// When a training starts and there is no subscriber yet, Burn installs its own, which writes `experiment.log`. So
/// install yours first, with `init()`. Burn then logs that it could not install its own, and continues;
/// `.with_application_logger(None)` avoids the attempt. If Burn's subscriber is installed first, `init()` panics.
///
/// The messages for Burn's log are in the trace, as events. To write them to a file, add a layer of
/// `tracing_subscriber::fmt`.
///
/// # Several devices
///
/// Burn gives each device a share of the data, and each share has `data` spans. The iterations are those of the first
/// share, so there is one per round. With `ExecutionStrategy::multi` they are on the thread of the loop, and training
/// steps on the threads of the devices; with `ExecutionStrategy::ddp` (untested) they are on the first device's thread.
/// If another share is longer than the first, its last batches are in no iteration.
pub fn training<B: 'static>(loader: Arc<dyn DataLoader<B>>) -> Arc<dyn DataLoader<B>> {
    Arc::new(Loader { loader, role: Role::Training })
}

/// Wraps a loader of validation data so that each pass over it is a span [`Profiled::VALIDATION`], with a span `data`
/// inside for each wait for a batch.
///
/// Validation does not end a step, so it is part of a step: the first of the next epoch. [`training`] has an example.
pub fn validation<B: 'static>(loader: Arc<dyn DataLoader<B>>) -> Arc<dyn DataLoader<B>> {
    Arc::new(Loader { loader, role: Role::Validation })
}

/// The purpose of a loader's batches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Training,
    /// Training on another device than the first.
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
    /// The span of the iteration or of the validation.
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
            return tracing::info_span!(Data::NAME).in_scope(|| self.batches.next());
        }
        self.open = None;
        let batch = tracing::info_span!(Data::NAME).in_scope(|| self.batches.next());
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
