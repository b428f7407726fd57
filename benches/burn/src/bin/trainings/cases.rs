//! The table of cases.

use crate::{copy_cases, host_cases, mlp_cases, text};
use burn::tensor::Device;
use std::error::Error;

/// One step of a training. It holds the model, the optimizer and the data.
pub(crate) type Step = Box<dyn FnMut()>;

/// Finds the size that makes a case meaningful on the machine at hand.
pub(crate) type Calibrate = fn(&Setup) -> Result<usize, Box<dyn Error>>;

/// A training with a planted fault.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) model: &'static str,
    /// Whether nobody has looked at this case while rules were written.
    pub(crate) is_held_out: bool,
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
    pub(crate) fn size(&self, full: usize, tiny: usize) -> usize {
        if self.tiny { tiny } else { full }
    }

    pub(crate) fn batch(&self) -> usize {
        self.size(BATCH, 4)
    }

    pub(crate) fn width(&self) -> usize {
        self.size(WIDTH, 16)
    }
}

/// The rows of a batch and the width of a layer in most trainings, and the number of classes.
pub(crate) const BATCH: usize = 4096;
pub(crate) const WIDTH: usize = 1024;
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
/// The steps between two reads of a metric.
pub(crate) const READ_EVERY: usize = 50;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "loss-every-step",
        model: "MLP with AdamW",
        is_held_out: false,
        kind: "host-sync",
        fix: "loss and accuracy are summed on the GPU and read every 50 steps",
        samples: [BATCH; 2],
        calibrate: None,
        make: mlp_cases::metrics,
    },
    Case {
        name: "augment-in-loop",
        model: "MLP on images",
        is_held_out: false,
        kind: "input-bound",
        fix: "worker threads augment batches ahead of the loop, through a bounded channel",
        samples: [BATCH; 2],
        calibrate: Some(mlp_cases::augmentations),
        make: mlp_cases::augmented,
    },
    Case {
        name: "logits-to-host",
        model: "MLP with 2048 classes",
        is_held_out: false,
        kind: "large-readback",
        fix: "`argmax` on the GPU; the accuracy is read every 50 steps",
        samples: [BATCH; 2],
        calibrate: None,
        make: mlp_cases::logits,
    },
    Case {
        name: "same-upload",
        model: "MLP on rows of a feature table",
        is_held_out: false,
        kind: "same-bytes-again",
        fix: "the table is uploaded once, before the loop",
        samples: [BATCH; 2],
        calibrate: None,
        make: mlp_cases::same_upload,
    },
    Case {
        name: "small-batches",
        model: "small MLP with AdamW",
        is_held_out: false,
        kind: "launch-bound",
        fix: "a batch of 512 instead of eight of 64",
        samples: BATCH_OF_LAUNCHES,
        calibrate: None,
        make: mlp_cases::small_batches,
    },
    Case {
        name: "gradient-norms",
        model: "transformer encoder with AdamW",
        is_held_out: true,
        kind: "host-sync",
        fix: "the norms are summed on the GPU and read every 100 steps",
        samples: [SENTENCES; 2],
        calibrate: None,
        make: host_cases::gradient_norms,
    },
    Case {
        name: "tokenize-in-loop",
        model: "transformer encoder on frozen word vectors",
        is_held_out: true,
        kind: "input-bound",
        fix: "worker threads tokenize batches ahead of the loop, through a bounded channel",
        samples: [SENTENCES; 2],
        calibrate: Some(text::words),
        make: text::tokenized,
    },
    Case {
        name: "feature-maps-to-host",
        model: "CNN",
        is_held_out: true,
        kind: "large-readback",
        fix: "the mean of each channel is computed on the GPU and read every 100 steps",
        samples: [IMAGES; 2],
        calibrate: None,
        make: copy_cases::feature_maps,
    },
    Case {
        name: "adjacency-every-step",
        model: "graph convolutional network",
        is_held_out: true,
        kind: "same-bytes-again",
        fix: "the adjacency matrix is uploaded once, before the loop",
        samples: [NODES; 2],
        calibrate: None,
        make: copy_cases::adjacency,
    },
    Case {
        name: "upload-by-column",
        model: "MLP on columns of a table",
        is_held_out: true,
        kind: "tiny-copies",
        fix: "one `TensorData` with all columns, taken apart on the GPU by `slice`",
        samples: [BATCH; 2],
        calibrate: None,
        make: copy_cases::columns,
    },
    Case {
        name: "short-sequences",
        model: "GRU",
        is_held_out: true,
        kind: "launch-bound",
        fix: "a batch of 256 sequences instead of four of 64",
        samples: SEQUENCES,
        calibrate: None,
        make: host_cases::recurrent,
    },
    Case {
        name: "log-every-sample",
        model: "autoencoder",
        is_held_out: true,
        kind: "host-work",
        fix: "another thread formats the log",
        samples: [BATCH; 2],
        calibrate: Some(host_cases::logged_values),
        make: host_cases::logged,
    },
    Case {
        name: "pageable-frames",
        model: "MLP on video frames, loaded by worker threads",
        is_held_out: true,
        kind: "pageable-copy",
        fix: "workers call `Device::staging` on a batch",
        samples: [BATCH; 2],
        calibrate: None,
        make: copy_cases::frames,
    },
];
