//! The table of cases.

use crate::{clicks, copy_cases, host_cases, layer_cases, measure_cases, mlp_cases, sketches, term_cases, text};
use burn::tensor::Device;
use kernspan::Profiler;
use std::error::Error;
use trainings_runner::Framework;

/// Burn, on the first CUDA device.
#[derive(Clone, Debug)]
pub(crate) struct Burn;

impl Framework for Burn {
    const NAME: &'static str = "burn";
    const WARM_UP: usize = 40;

    type Device = Device;
    type Error = Box<dyn Error>;
    type Attached = kernspan_burn::Attached;

    fn device(tiny: bool) -> Result<Device> {
        let device = burn_bench::gpu().or_else(|error| if tiny { Ok(Device::flex()) } else { Err(error) })?;
        Ok(device.autodiff())
    }

    fn synchronize(device: &Device) -> Result<()> {
        Ok(device.sync()?)
    }

    fn attach(profiler: &Profiler, device: &Device) -> Result<kernspan_burn::Attached> {
        Ok(kernspan_burn::attach(profiler, device)?)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;
pub(crate) type Setup = trainings_runner::Setup<Burn>;
pub(crate) type Step = trainings_runner::Step<Burn>;
type Case = trainings_runner::Case<Burn>;

/// Makes a step of a function that panics when it fails, as most functions of Burn do.
pub(crate) fn forever(mut run: impl FnMut() + 'static) -> Step {
    Box::new(move || {
        run();
        Ok(())
    })
}

/// Sizes that most trainings have in common.
pub(crate) trait Sizes {
    /// Returns the number of rows of a batch.
    fn batch(&self) -> usize;

    /// Returns the width of a layer.
    fn width(&self) -> usize;
}

impl Sizes for Setup {
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
pub(crate) const CLASSES: usize = 64;
/// The rows of the batches of the host-bound MLP.
pub(crate) const BATCH_OF_LAUNCHES: [usize; 2] = [64, 512];
/// The sequences of a batch of the recurrent network.
pub(crate) const SEQUENCES: [usize; 2] = [64, 256];
/// The sentences of a batch of the transformer.
pub(crate) const SENTENCES: usize = 64;
/// The images of a batch of the convolutional network.
pub(crate) const IMAGES: usize = 512;
/// The nodes of the graph.
pub(crate) const NODES: usize = 2048;
/// The days of a batch of the model of weather.
pub(crate) const FORECASTS: usize = 1024;
/// The frames of a batch of the model of sound.
pub(crate) const FRAMES: usize = 1024;
/// The steps between two reads of a metric.
pub(crate) const READ_EVERY: usize = 50;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "loss-every-step",
        model: "MLP with AdamW",
        kind: "host-sync",
        is_held_out: false,
        fix: "loss and accuracy are summed on the GPU and read every 50 steps",
        samples: [BATCH; 2],
        calibrate: None,
        make: mlp_cases::metrics,
    },
    Case {
        name: "augment-in-loop",
        model: "MLP on images",
        kind: "input-bound",
        is_held_out: false,
        fix: "worker threads augment batches ahead of the loop, through a bounded channel",
        samples: [BATCH; 2],
        calibrate: Some(mlp_cases::augmentations),
        make: mlp_cases::augmented,
    },
    Case {
        name: "logits-to-host",
        model: "MLP with 2048 classes",
        kind: "large-readback",
        is_held_out: false,
        fix: "`argmax` on the GPU; the accuracy is read every 50 steps",
        samples: [BATCH; 2],
        calibrate: None,
        make: mlp_cases::logits,
    },
    Case {
        name: "same-upload",
        model: "MLP on rows of a feature table",
        kind: "same-bytes-again",
        is_held_out: false,
        fix: "the table is uploaded once, before the loop",
        samples: [BATCH; 2],
        calibrate: None,
        make: mlp_cases::same_upload,
    },
    Case {
        name: "small-batches",
        model: "small MLP with AdamW",
        kind: "launch-bound",
        is_held_out: false,
        fix: "a batch of 512 instead of eight of 64",
        samples: BATCH_OF_LAUNCHES,
        calibrate: None,
        make: mlp_cases::small_batches,
    },
    Case {
        name: "gradient-norms",
        model: "transformer encoder with AdamW",
        kind: "host-sync",
        is_held_out: true,
        fix: "the norms are summed on the GPU and read every 100 steps",
        samples: [SENTENCES; 2],
        calibrate: None,
        make: host_cases::gradient_norms,
    },
    Case {
        name: "tokenize-in-loop",
        model: "transformer encoder on frozen word vectors",
        kind: "input-bound",
        is_held_out: true,
        fix: "worker threads tokenize batches ahead of the loop, through a bounded channel",
        samples: [SENTENCES; 2],
        calibrate: Some(text::words),
        make: text::tokenized,
    },
    Case {
        name: "feature-maps-to-host",
        model: "CNN",
        kind: "large-readback",
        is_held_out: true,
        fix: "the mean of each channel is computed on the GPU and read every 100 steps",
        samples: [IMAGES; 2],
        calibrate: None,
        make: copy_cases::feature_maps,
    },
    Case {
        name: "adjacency-every-step",
        model: "graph convolutional network",
        kind: "same-bytes-again",
        is_held_out: true,
        fix: "the adjacency matrix is uploaded once, before the loop",
        samples: [NODES; 2],
        calibrate: None,
        make: copy_cases::adjacency,
    },
    Case {
        name: "upload-by-column",
        model: "MLP on columns of a table",
        kind: "tiny-copies",
        is_held_out: true,
        fix: "one `TensorData` with all columns, taken apart on the GPU by `slice`",
        samples: [BATCH; 2],
        calibrate: None,
        make: copy_cases::columns,
    },
    Case {
        name: "short-sequences",
        model: "GRU",
        kind: "launch-bound",
        is_held_out: true,
        fix: "a batch of 256 sequences instead of four of 64",
        samples: SEQUENCES,
        calibrate: None,
        make: host_cases::recurrent,
    },
    Case {
        name: "log-every-sample",
        model: "autoencoder",
        kind: "host-work",
        is_held_out: true,
        fix: "another thread formats the log",
        samples: [BATCH; 2],
        calibrate: Some(host_cases::logged_values),
        make: host_cases::logged,
    },
    Case {
        name: "pageable-frames",
        model: "MLP on video frames, loaded by worker threads",
        kind: "pageable-copy",
        is_held_out: true,
        fix: "workers call `Device::staging` on a batch",
        samples: [BATCH; 2],
        calibrate: None,
        make: copy_cases::frames,
    },
    Case {
        name: "workers-with-a-lock",
        model: "MLP on the lines of a log, which worker threads parse",
        kind: "input-bound",
        is_held_out: true,
        fix: "workers hold the lock of the log to take lines, and not while they parse them",
        samples: [BATCH; 2],
        calibrate: Some(clicks::fields),
        make: clicks::parsed,
    },
    Case {
        name: "layer-timings",
        model: "residual MLP with AdamW",
        kind: "host-sync",
        is_held_out: true,
        fix: "the device is synchronized after each layer in every 100th step only",
        samples: [BATCH; 2],
        calibrate: None,
        make: measure_cases::timed,
    },
    Case {
        name: "scores-on-host",
        model: "MLP that forecasts the weather at points of a grid",
        kind: "large-readback",
        is_held_out: true,
        fix: "error and correlation are summed on the GPU and read every 100 steps",
        samples: [FORECASTS; 2],
        calibrate: None,
        make: measure_cases::scored,
    },
    Case {
        name: "sort-every-step",
        model: "MLP that sees easy samples first",
        kind: "host-work",
        is_held_out: true,
        fix: "samples are sorted every 100 steps",
        samples: [BATCH; 2],
        calibrate: Some(measure_cases::levels),
        make: measure_cases::sorted,
    },
    Case {
        name: "offloaded-teacher",
        model: "distillation: an MLP learns from a frozen one",
        kind: "same-bytes-again",
        is_held_out: true,
        fix: "the weights of the frozen layers are uploaded once, before the loop",
        samples: [BATCH; 2],
        calibrate: None,
        make: layer_cases::distilled,
    },
    Case {
        name: "codebooks-in-loop",
        model: "MLP that predicts codes of sound, of eight codebooks",
        kind: "launch-bound",
        is_held_out: true,
        fix: "one head and one loss for all codebooks, instead of a loop over codebooks",
        samples: [FRAMES; 2],
        calibrate: None,
        make: layer_cases::codebooks,
    },
    Case {
        name: "ask-and-wait",
        model: "MLP on sketches, which another thread draws",
        kind: "input-bound",
        is_held_out: true,
        fix: "the loop asks for the next batch before it computes this one",
        samples: [BATCH; 2],
        calibrate: Some(sketches::strokes),
        make: sketches::drawn,
    },
    Case {
        name: "weigh-on-host",
        model: "MLP of a physical field, with four losses",
        kind: "host-sync",
        is_held_out: true,
        fix: "the GPU computes the weights of the losses",
        samples: [BATCH; 2],
        calibrate: None,
        make: term_cases::weighed,
    },
    Case {
        name: "patterns-every-step",
        model: "Hopfield network: an MLP that looks up patterns",
        kind: "same-bytes-again",
        is_held_out: true,
        fix: "the patterns are uploaded once, before the loop",
        samples: [BATCH; 2],
        calibrate: None,
        make: term_cases::associated,
    },
];
