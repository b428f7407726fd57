//! The table of faults.

use crate::training::{Arithmetic, BatchMemory, Compile, Input, LayerMemory, Training};

/// A performance fault that can be planted in a training.
#[derive(Debug)]
pub(crate) struct Fault {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The fault and its repair in one line.
    pub(crate) description: &'static str,
    /// Returns the training with the fault (`true`) or without it.
    pub(crate) training: fn(bool) -> Training,
}

impl Fault {
    /// Returns the fault with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        FAULTS.iter().find(|fault| fault.name == name)
    }
}

/// All faults.
pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "scalar-read",
        description: "each layer's gradient norm is read; repaired: it is not",
        training: |faulty| Training { read_norms: faulty, ..Training::BASE },
    },
    Fault {
        name: "synchronize",
        description: "the host waits for the GPU after each layer; repaired: it does not",
        training: |faulty| Training { synchronize: faulty, ..Training::BASE },
    },
    Fault {
        name: "input",
        description: "the training's thread makes each batch; repaired: four threads make batches ahead",
        training: |faulty| Training { input: if faulty { Input::InStep } else { Input::Prefetched }, ..Training::BASE },
    },
    Fault {
        name: "pageable-copy",
        description: "batches of 8 MiB are copied ahead from pageable memory; repaired: from pinned memory",
        training: |faulty| Training {
            batch_bytes: 8 << 20,
            copy_ahead: true,
            batch_memory: if faulty { BatchMemory::Pageable } else { BatchMemory::Pinned },
            ..Training::BASE
        },
    },
    Fault {
        name: "tiny-copies",
        description: "labels are copied in 200 copies of 64 bytes; repaired: in one",
        training: |faulty| Training { label_copies: if faulty { 200 } else { 1 }, ..Training::BASE },
    },
    Fault {
        name: "large-readback",
        description: "16 MiB of activations are copied to the host in each step; repaired: they are not",
        training: |faulty| Training { read_back: faulty, ..Training::BASE },
    },
    Fault {
        name: "launch-bound",
        description: "400 short kernels are launched one by one; repaired: as a CUDA graph",
        training: |faulty| Training { iterations: 32, kernels_per_layer: 20, graph: !faulty, ..Training::BASE },
    },
    Fault {
        name: "small-batch",
        description: "kernels have 8 blocks, one for each sample; repaired: 128 samples and blocks",
        training: |faulty| {
            let samples = if faulty { 8 } else { 128 };
            Training { samples, blocks: samples, ..Training::BASE }
        },
    },
    Fault {
        name: "f32-matmul",
        description: "matrix products are computed in f32; repaired: in TF32",
        training: |faulty| Training {
            layers: 2,
            products: Some(if faulty { Arithmetic::F32 } else { Arithmetic::Tf32 }),
            ..Training::BASE
        },
    },
    Fault {
        name: "allocations",
        description: "each layer allocates 64 MiB and frees them; repaired: a buffer is allocated before the training",
        training: |faulty| Training {
            layer_memory: if faulty { LayerMemory::Allocated } else { LayerMemory::Reused },
            record_memory: true,
            ..Training::BASE
        },
    },
    Fault {
        name: "host-work",
        description: "the host computes for 25 µs before each kernel of a layer; repaired: it does not",
        training: |faulty| Training { augment: faulty, ..Training::BASE },
    },
    Fault {
        name: "module-load",
        description: "the driver compiles a kernel in each step; repaired: once, before the training",
        training: |faulty| Training {
            custom_kernel: Some(if faulty { Compile::EachStep } else { Compile::Once }),
            ..Training::BASE
        },
    },
    Fault {
        name: "outliers",
        description: "every fifth step writes a checkpoint; repaired: none does",
        training: |faulty| Training { checkpoint: faulty, recorded_steps: 10, ..Training::BASE },
    },
    Fault {
        name: "exposed-copy",
        description: "batches of 32 MiB are copied before the kernels; repaired: during those of the step before",
        training: |faulty| Training {
            batch_bytes: 32 << 20,
            copy_ahead: !faulty,
            iterations: 3 * Training::BASE.iterations,
            ..Training::BASE
        },
    },
    Fault {
        name: "done-twice",
        description: "the forward pass runs twice in a step; repaired: once",
        training: |faulty| Training { forwards: if faulty { 2 } else { 1 }, ..Training::BASE },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;

    #[test]
    fn faults_have_names_of_their_own_and_differ_from_their_repair() {
        for (index, fault) in FAULTS.iter().enumerate() {
            assert!(FAULTS[..index].iter().all(|other| other.name != fault.name), "{} is there twice", fault.name);
            let [faulty, repaired] = [true, false].map(|faulty| format!("{:?}", (fault.training)(faulty)));
            assert_ne!(faulty, repaired, "{}", fault.name);
        }
    }

    #[test]
    fn no_window_has_a_step_that_reads_the_loss() {
        for fault in FAULTS {
            let window = Recording::window(&(fault.training)(true));
            assert!(window.end < Training::READ_LOSS_EVERY, "{}: {window:?}", fault.name);
        }
    }

    #[test]
    fn the_window_with_outliers_has_two_checkpoints() {
        let training = (Fault::named("outliers").expect("a fault").training)(true);
        let checkpoints =
            Recording::window(&training).filter(|step| Training::is_last_of(*step, Training::CHECKPOINT_EVERY));
        assert_eq!(checkpoints.count(), 2);
    }
}
