//! The table of cases.

use crate::{compute_cases, copy_cases, fused_cases, host_cases, input_cases, recurrent_cases, sync_cases};
use candle_core::{Device, Result};

/// One step of a training. It holds the model, the optimizer and the data.
pub(crate) type Step = Box<dyn FnMut() -> Result<()>>;

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
    /// Returns a size that depends on the machine, [`Setup::amount`].
    pub(crate) calibrate: Option<fn(&Setup) -> Result<usize>>,
    pub(crate) make: fn(&Setup, Variant) -> Result<Step>,
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

    pub(crate) fn is_fault(self) -> bool {
        self == Self::Fault
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
        Self { device: device.clone(), tiny, amount: 1 }
    }

    /// Returns the size of the training that is measured, or the one that only has to run.
    pub(crate) fn size(&self, full: usize, tiny: usize) -> usize {
        if self.tiny { tiny } else { full }
    }
}

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "gelu-by-hand",
        model: "MLP",
        is_held_out: false,
        kind: "unfused-chain",
        fix: "`gelu()` instead of the formula in elementary operations",
        calibrate: None,
        make: fused_cases::gelu,
    },
    Case {
        name: "gelu-by-hand-frozen",
        model: "MLP, of which only the head is trained",
        is_held_out: false,
        kind: "unfused-chain",
        fix: "`gelu()` instead of the formula in elementary operations",
        calibrate: None,
        make: fused_cases::frozen_gelu,
    },
    Case {
        name: "rmsnorm-by-hand",
        model: "transformer in bf16, of which only the head is trained",
        is_held_out: false,
        kind: "unfused-chain",
        fix: "`candle_nn::ops::rms_norm` instead of elementary operations",
        calibrate: None,
        make: fused_cases::rms_norm,
    },
    Case {
        name: "same-upload",
        model: "recommender: MLP on rows of a feature table",
        is_held_out: false,
        kind: "same-bytes-again",
        fix: "the table is uploaded once, before the loop",
        calibrate: None,
        make: copy_cases::same_upload,
    },
    Case {
        name: "loss-every-step",
        model: "CNN with AdamW",
        is_held_out: false,
        kind: "host-sync",
        fix: "loss, accuracy and gradient norm are summed on the GPU and read every 50 steps",
        calibrate: Some(host_cases::batch_of_metrics),
        make: host_cases::metrics,
    },
    Case {
        name: "augment-in-loop",
        model: "CNN",
        is_held_out: false,
        kind: "input-bound",
        fix: "worker threads augment batches ahead of the loop, through a bounded channel",
        calibrate: Some(host_cases::augmentations),
        make: host_cases::augmented,
    },
    Case {
        name: "f32-products",
        model: "vision transformer",
        is_held_out: false,
        kind: "no-tensor-cores",
        fix: "`candle_core::cuda::set_gemm_reduced_precision_f32(true)`",
        calibrate: None,
        make: compute_cases::products,
    },
    Case {
        name: "logits-to-host",
        model: "MLP with 1536 classes",
        is_held_out: false,
        kind: "large-readback",
        fix: "`argmax` on the GPU; the accuracy is read every 50 steps",
        calibrate: None,
        make: copy_cases::logits,
    },
    Case {
        name: "tiny-uploads",
        model: "set model: a sum over elements, then an MLP",
        is_held_out: false,
        kind: "tiny-copies",
        fix: "one `from_slice` for all elements, and `get` for each",
        calibrate: None,
        make: copy_cases::tiny_uploads,
    },
    Case {
        name: "forward-twice",
        model: "residual MLP",
        is_held_out: false,
        kind: "repeated-work",
        fix: "the accuracy uses the logits of the loss",
        calibrate: None,
        make: compute_cases::forward_twice,
    },
    Case {
        name: "heads-in-loop",
        model: "small transformer",
        is_held_out: false,
        kind: "launch-bound",
        fix: "one product for all heads, instead of a loop over heads",
        calibrate: Some(host_cases::batch_of_heads),
        make: host_cases::heads,
    },
    Case {
        name: "softmax-by-hand",
        model: "distillation: an MLP learns from a frozen transformer",
        is_held_out: true,
        kind: "unfused-chain",
        fix: "`softmax_last_dim` instead of `softmax`, which is elementary operations",
        calibrate: None,
        make: fused_cases::softmax,
    },
    Case {
        name: "clip-by-norm",
        model: "residual MLP with AdamW",
        is_held_out: true,
        kind: "host-sync",
        fix: "the GPU computes by how much gradients are scaled",
        calibrate: None,
        make: sync_cases::clipped,
    },
    Case {
        name: "scores-every-step",
        model: "GAN of two MLPs",
        is_held_out: true,
        kind: "host-sync",
        fix: "losses and scores are summed on the GPU and read every 50 steps",
        calibrate: Some(sync_cases::batch_of_scores),
        make: sync_cases::scores,
    },
    Case {
        name: "decode-in-loop",
        model: "CNN on video clips",
        is_held_out: true,
        kind: "input-bound",
        fix: "worker threads decode batches ahead of the loop, through a bounded channel",
        calibrate: Some(input_cases::frames),
        make: input_cases::decoded,
    },
    Case {
        name: "preview-to-host",
        model: "autoencoder",
        is_held_out: true,
        kind: "large-readback",
        fix: "eight images are taken on the GPU and read every 50 steps",
        calibrate: None,
        make: copy_cases::preview,
    },
    Case {
        name: "upload-by-column",
        model: "MLP on columns of a table",
        is_held_out: true,
        kind: "tiny-copies",
        fix: "one `from_vec` for all columns, and `get` for each",
        calibrate: None,
        make: copy_cases::columns,
    },
    Case {
        name: "sines-every-step",
        model: "MLP on spectra of sounds",
        is_held_out: true,
        kind: "same-bytes-again",
        fix: "the sines and cosines are uploaded once, before the loop",
        calibrate: None,
        make: copy_cases::spectra,
    },
    Case {
        name: "batch-in-parts",
        model: "LSTM",
        is_held_out: true,
        kind: "launch-bound",
        fix: "one pass over all sequences, instead of four over a quarter each",
        calibrate: None,
        make: recurrent_cases::parts,
    },
    Case {
        name: "f32-towers",
        model: "contrastive learning: two MLPs",
        is_held_out: true,
        kind: "no-tensor-cores",
        fix: "`candle_core::cuda::set_gemm_reduced_precision_f32(true)`",
        calibrate: None,
        make: compute_cases::towers,
    },
    Case {
        name: "simulate-in-loop",
        model: "Q-learning with an MLP",
        is_held_out: true,
        kind: "host-work",
        fix: "another thread simulates ahead of the loop, through a bounded channel",
        calibrate: Some(input_cases::substeps),
        make: input_cases::simulated,
    },
];
