//! The table of cases.

use crate::{
    audio, compute_cases, copy_cases, fused_cases, host_cases, image_cases, input_cases, loop_cases, recommender,
    recurrent_cases, rotary, sync_cases, weight_cases,
};
use candle_core::{Device, Result, cuda::set_gemm_reduced_precision_f32};
use kernspan::Profiler;
use std::error::Error;
use trainings_runner::{Framework, Variant};

/// Candle, on the first CUDA device.
#[derive(Clone, Debug)]
pub(crate) struct Candle;

impl Framework for Candle {
    const NAME: &'static str = "candle";
    const WARM_UP: usize = 20;

    type Device = Device;
    type Error = candle_core::Error;
    type Attached = ();

    fn device(tiny: bool) -> std::result::Result<Device, Box<dyn Error>> {
        let device = Device::cuda_if_available(0)?;
        if device.is_cpu() && !tiny {
            return Err("there is no GPU: only `--tiny` runs on the CPU".into());
        }
        Ok(device)
    }

    fn synchronize(device: &Device) -> Result<()> {
        device.synchronize()
    }

    /// The profiler needs no help to observe Candle.
    fn attach(_: &Profiler, _: &Device) -> std::result::Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// Lets products of f32 matrices use TF32, except where that is the fault: it would be the first finding in every
    /// GPU-bound case.
    fn configure(case: &Case, variant: Variant) {
        set_gemm_reduced_precision_f32(case.kind != "no-tensor-cores" || variant == Variant::Fixed);
    }
}

pub(crate) type Setup = trainings_runner::Setup<Candle>;
pub(crate) type Step = trainings_runner::Step<Candle>;
type Case = trainings_runner::Case<Candle>;

/// Both variants have the same number of samples in a step.
const SAME: [usize; 2] = [1; 2];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "gelu-by-hand",
        model: "MLP",
        kind: "unfused-chain",
        is_held_out: false,
        fix: "`gelu()` instead of the formula in elementary operations",
        samples: SAME,
        calibrate: None,
        make: fused_cases::gelu,
    },
    Case {
        name: "gelu-by-hand-frozen",
        model: "MLP, of which only the head is trained",
        kind: "unfused-chain",
        is_held_out: false,
        fix: "`gelu()` instead of the formula in elementary operations",
        samples: SAME,
        calibrate: None,
        make: fused_cases::frozen_gelu,
    },
    Case {
        name: "rmsnorm-by-hand",
        model: "transformer in bf16, of which only the head is trained",
        kind: "unfused-chain",
        is_held_out: false,
        fix: "`candle_nn::ops::rms_norm` instead of elementary operations",
        samples: SAME,
        calibrate: None,
        make: fused_cases::rms_norm,
    },
    Case {
        name: "same-upload",
        model: "recommender: MLP on rows of a feature table",
        kind: "same-bytes-again",
        is_held_out: false,
        fix: "the table is uploaded once, before the loop",
        samples: SAME,
        calibrate: None,
        make: copy_cases::same_upload,
    },
    Case {
        name: "loss-every-step",
        model: "CNN with AdamW",
        kind: "host-sync",
        is_held_out: false,
        fix: "loss, accuracy and gradient norm are summed on the GPU and read every 50 steps",
        samples: SAME,
        calibrate: Some(host_cases::batch_of_metrics),
        make: host_cases::metrics,
    },
    Case {
        name: "augment-in-loop",
        model: "CNN",
        kind: "input-bound",
        is_held_out: false,
        fix: "worker threads augment batches ahead of the loop, through a bounded channel",
        samples: SAME,
        calibrate: Some(host_cases::augmentations),
        make: host_cases::augmented,
    },
    Case {
        name: "f32-products",
        model: "vision transformer",
        kind: "no-tensor-cores",
        is_held_out: false,
        fix: "`candle_core::cuda::set_gemm_reduced_precision_f32(true)`",
        samples: SAME,
        calibrate: None,
        make: compute_cases::products,
    },
    Case {
        name: "logits-to-host",
        model: "MLP with 1536 classes",
        kind: "large-readback",
        is_held_out: false,
        fix: "`argmax` on the GPU; the accuracy is read every 50 steps",
        samples: SAME,
        calibrate: None,
        make: copy_cases::logits,
    },
    Case {
        name: "tiny-uploads",
        model: "set model: a sum over elements, then an MLP",
        kind: "tiny-copies",
        is_held_out: false,
        fix: "one `from_slice` for all elements, and `get` for each",
        samples: SAME,
        calibrate: None,
        make: copy_cases::tiny_uploads,
    },
    Case {
        name: "forward-twice",
        model: "residual MLP",
        kind: "repeated-work",
        is_held_out: false,
        fix: "the accuracy uses the logits of the loss",
        samples: SAME,
        calibrate: None,
        make: compute_cases::forward_twice,
    },
    Case {
        name: "heads-in-loop",
        model: "small transformer",
        kind: "launch-bound",
        is_held_out: false,
        fix: "one product for all heads, instead of a loop over heads",
        samples: SAME,
        calibrate: Some(host_cases::batch_of_heads),
        make: host_cases::heads,
    },
    Case {
        name: "softmax-by-hand",
        model: "distillation: an MLP learns from a frozen transformer",
        kind: "unfused-chain",
        is_held_out: true,
        fix: "`softmax_last_dim` instead of `softmax`, which is elementary operations",
        samples: SAME,
        calibrate: None,
        make: fused_cases::softmax,
    },
    Case {
        name: "clip-by-norm",
        model: "residual MLP with AdamW",
        kind: "host-sync",
        is_held_out: true,
        fix: "the GPU computes by how much gradients are scaled",
        samples: SAME,
        calibrate: None,
        make: sync_cases::clipped,
    },
    Case {
        name: "scores-every-step",
        model: "GAN of two MLPs",
        kind: "host-sync",
        is_held_out: true,
        fix: "losses and scores are summed on the GPU and read every 50 steps",
        samples: SAME,
        calibrate: Some(sync_cases::batch_of_scores),
        make: sync_cases::scores,
    },
    Case {
        name: "decode-in-loop",
        model: "CNN on video clips",
        kind: "input-bound",
        is_held_out: true,
        fix: "worker threads decode batches ahead of the loop, through a bounded channel",
        samples: SAME,
        calibrate: Some(input_cases::frames),
        make: input_cases::decoded,
    },
    Case {
        name: "preview-to-host",
        model: "autoencoder",
        kind: "large-readback",
        is_held_out: true,
        fix: "eight images are taken on the GPU and read every 50 steps",
        samples: SAME,
        calibrate: None,
        make: copy_cases::preview,
    },
    Case {
        name: "upload-by-column",
        model: "MLP on columns of a table",
        kind: "tiny-copies",
        is_held_out: true,
        fix: "one `from_vec` for all columns, and `get` for each",
        samples: SAME,
        calibrate: None,
        make: copy_cases::columns,
    },
    Case {
        name: "sines-every-step",
        model: "MLP on spectra of sounds",
        kind: "same-bytes-again",
        is_held_out: true,
        fix: "the sines and cosines are uploaded once, before the loop",
        samples: SAME,
        calibrate: None,
        make: copy_cases::spectra,
    },
    Case {
        name: "batch-in-parts",
        model: "LSTM",
        kind: "launch-bound",
        is_held_out: true,
        fix: "one pass over all sequences, instead of four over a quarter each",
        samples: SAME,
        calibrate: None,
        make: recurrent_cases::parts,
    },
    Case {
        name: "f32-towers",
        model: "contrastive learning: two MLPs",
        kind: "no-tensor-cores",
        is_held_out: true,
        fix: "`candle_core::cuda::set_gemm_reduced_precision_f32(true)`",
        samples: SAME,
        calibrate: None,
        make: compute_cases::towers,
    },
    Case {
        name: "simulate-in-loop",
        model: "Q-learning with an MLP",
        kind: "host-work",
        is_held_out: true,
        fix: "another thread simulates ahead of the loop, through a bounded channel",
        samples: SAME,
        calibrate: Some(input_cases::substeps),
        make: input_cases::simulated,
    },
    Case {
        name: "one-slow-worker",
        model: "transformer on spectra of sounds, which worker threads compute",
        kind: "input-bound",
        is_held_out: true,
        fix: "five worker threads instead of one, which is too slow",
        samples: SAME,
        calibrate: Some(audio::windows),
        make: audio::spectra,
    },
    Case {
        name: "pixels-as-floats",
        model: "vision transformer on images of worker threads",
        kind: "pageable-copy",
        is_held_out: true,
        fix: "images are copied as `u8`, and become `f32` on the GPU by `to_dtype`",
        samples: SAME,
        calibrate: None,
        make: image_cases::pixels,
    },
    Case {
        name: "stack-on-device",
        model: "MLP on small images",
        kind: "tiny-copies",
        is_held_out: true,
        fix: "one `from_vec` for the images of a batch and one for its labels, instead of `stack` on the GPU",
        samples: SAME,
        calibrate: None,
        make: image_cases::collated,
    },
    Case {
        name: "average-on-host",
        model: "diffusion model: transformer",
        kind: "large-readback",
        is_held_out: true,
        fix: "the moving average of the weights is kept on the GPU",
        samples: SAME,
        calibrate: None,
        make: weight_cases::averaged,
    },
    Case {
        name: "reference-twice",
        model: "language model that learns from rewards, with a frozen reference",
        kind: "repeated-work",
        is_held_out: true,
        fix: "the reference runs once, for the advantages and the loss",
        samples: SAME,
        calibrate: None,
        make: weight_cases::rewarded,
    },
    Case {
        name: "read-until-settled",
        model: "deep equilibrium model",
        kind: "host-sync",
        is_held_out: true,
        fix: "a constant number of iterations; the GPU adds up their changes, which are read every 64 steps",
        samples: SAME,
        calibrate: None,
        make: loop_cases::equilibrium,
    },
    Case {
        name: "members-in-loop",
        model: "ensemble of MLPs",
        kind: "launch-bound",
        is_held_out: true,
        fix: "one product for all members, instead of a loop over members",
        samples: SAME,
        calibrate: None,
        make: loop_cases::ensemble,
    },
    Case {
        name: "rope-by-hand",
        model: "transformer in bf16, of which only the head is trained",
        kind: "unfused-chain",
        is_held_out: true,
        fix: "`candle_nn::rotary_emb::rope` instead of elementary operations",
        samples: SAME,
        calibrate: None,
        make: rotary::rotated,
    },
    Case {
        name: "negatives-in-step",
        model: "recommender: MLP on pairs of users and items",
        kind: "host-work",
        is_held_out: true,
        fix: "worker threads draw negatives ahead of the loop, through a bounded channel",
        samples: SAME,
        calibrate: Some(recommender::candidates),
        make: recommender::sampled,
    },
];
