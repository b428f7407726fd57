//! The options of a training: a fault is planted by setting one of them.

/// The options of a training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Training {
    /// Samples in a batch.
    pub(crate) samples: u32,
    /// Blocks of 256 threads in the grid of each kernel.
    pub(crate) blocks: u32,
    /// Fused multiply-adds of each thread of a kernel, one after the other: some 2.3 ns each.
    pub(crate) iterations: u32,
    /// Layers of the model.
    pub(crate) layers: u32,
    /// Kernels that a layer launches, in the forward pass and again in the backward pass.
    pub(crate) kernels_per_layer: u32,
    /// Times that the forward pass runs in a step.
    pub(crate) forwards: u32,
    /// Bytes of a batch, which each step copies to the GPU.
    pub(crate) batch_bytes: usize,
    /// Memory of the host that batches are in.
    pub(crate) batch_memory: BatchMemory,
    /// The thread that makes batches.
    pub(crate) input: Input,
    /// Whether the next batch is copied on a second stream while the GPU computes.
    pub(crate) copy_ahead: bool,
    /// Copies that bring the labels to the GPU.
    pub(crate) label_copies: usize,
    /// Whether the norm of each layer's gradients is read.
    pub(crate) read_norms: bool,
    /// Whether the host waits for the GPU after each layer.
    pub(crate) synchronize: bool,
    /// Whether all activations are copied to the host in each step.
    pub(crate) read_back: bool,
    /// Whether the kernels of a step are one CUDA graph.
    pub(crate) graph: bool,
    /// The arithmetic of matrix products in the layers; `None` without products.
    pub(crate) products: Option<Arithmetic>,
    /// The memory that layers need beside their activations.
    pub(crate) layer_memory: LayerMemory,
    /// Whether the host computes something before each kernel of a layer.
    pub(crate) augment: bool,
    /// The kernel that is compiled by the driver; `None` without one.
    pub(crate) custom_kernel: Option<Compile>,
    /// Whether every fifth step writes a checkpoint.
    pub(crate) checkpoint: bool,
    /// Whether allocations are recorded.
    pub(crate) record_memory: bool,
    /// Steps that are recorded.
    pub(crate) recorded_steps: u64,
}

impl Training {
    /// A training without a fault. The host needs half as long as the GPU for a step and never waits, except for the
    /// loss of every fiftieth step.
    pub(crate) const BASE: Self = Self {
        samples: 64,
        // Two blocks for each multiprocessor of an H200.
        blocks: 264,
        // About 8 µs. A multiple of 32, by which the loop is unrolled.
        iterations: 3072,
        layers: 10,
        kernels_per_layer: 2,
        forwards: 1,
        batch_bytes: 64 << 10,
        batch_memory: BatchMemory::Pinned,
        input: Input::Ready,
        copy_ahead: false,
        label_copies: 0,
        read_norms: false,
        synchronize: false,
        read_back: false,
        graph: false,
        products: None,
        layer_memory: LayerMemory::None,
        augment: false,
        custom_kernel: None,
        checkpoint: false,
        record_memory: false,
        recorded_steps: 6,
    };

    /// Kernels of the optimizer in a step.
    pub(crate) const OPTIMIZER_KERNELS: u32 = 3;
    /// Every how many steps the loss is read.
    pub(crate) const READ_LOSS_EVERY: u64 = 50;
    /// Every how many steps there is a checkpoint, if there is one at all.
    pub(crate) const CHECKPOINT_EVERY: u64 = 5;
    /// Bytes of all labels of a batch.
    pub(crate) const LABEL_BYTES: usize = 200 * 64;

    /// Whether a step is the last one of each `every` steps. The first step is not, so that a window can lie between
    /// two of them.
    pub(crate) fn is_last_of(step: u64, every: u64) -> bool {
        step % every == every - 1
    }
}

/// Memory of the host that the GPU copies from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchMemory {
    /// Page-locked memory, which the GPU reads by itself.
    Pinned,
    /// Ordinary memory, which the driver has to copy to page-locked memory first.
    Pageable,
}

/// The thread that makes batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// Batches are made before the training.
    Ready,
    /// The training's thread makes each batch in the step that needs it.
    InStep,
    /// Other threads make batches ahead.
    Prefetched,
}

/// The arithmetic of products of `f32` matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// In full precision.
    F32,
    /// On tensor cores, with factors rounded to TF32.
    Tf32,
}

/// The memory that a layer needs beside its activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerMemory {
    /// None.
    None,
    /// A buffer that is allocated before the training.
    Reused,
    /// A buffer that each layer allocates and frees.
    Allocated,
}

/// The time at which the driver compiles a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compile {
    /// Before the training.
    Once,
    /// In each step.
    EachStep,
}
