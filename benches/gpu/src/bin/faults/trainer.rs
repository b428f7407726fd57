//! The training loop's step.

use crate::{
    Failure,
    batches::Batches,
    custom_kernel::CustomKernel,
    device::{Device, Kernel, pinned},
    host_work::HostWork,
    layer_memory::LayerBuffers,
    lead::Lead,
    product::Product,
    training::Training,
};
use cudarc::driver::{CudaGraph, sys};
use std::{hint::black_box, time::Duration};
use tracing::{info_span, instrument};

/// A training on a GPU, with all that its steps need.
pub(crate) struct Trainer {
    training: Training,
    device: Device,
    work: HostWork,
    lead: Lead,
    batches: Batches,
    buffers: LayerBuffers,
    product: Option<Product>,
    custom_kernel: Option<CustomKernel>,
    /// The kernels of a step, if they are launched together.
    graph: Option<CudaGraph>,
    /// Pinned memory of the host for activations.
    activations: &'static mut [u8],
}

impl Trainer {
    /// Time of the host before each kernel of a layer, if it computes there.
    const AUGMENT: Duration = Duration::from_micros(25);
    /// Time of the host to write a checkpoint, beside the copy.
    const CHECKPOINT: Duration = Duration::from_millis(1);

    /// Sets up a training of at most this many steps, in which the host is ahead of the GPU by at most `lead` steps, if
    /// that is not 0.
    pub(crate) fn new(training: Training, steps: u64, lead: usize) -> Result<Self, Failure> {
        let device = Device::new()?;
        let work = HostWork::calibrate();
        let mut trainer = Self {
            lead: Lead::new(lead, &device)?,
            batches: Batches::new(&training, &device, work)?,
            buffers: LayerBuffers::new(training.layer_memory)?,
            product: training.products.map(|arithmetic| Product::new(arithmetic, &device)).transpose()?,
            custom_kernel: training.custom_kernel.map(|compile| CustomKernel::new(compile, steps)).transpose()?,
            graph: None,
            activations: pinned(Device::ACTIVATION_BYTES)?,
            training,
            device,
            work,
        };
        if training.graph {
            trainer.graph = Some(trainer.capture()?);
        }
        Ok(trainer)
    }

    /// Returns the options.
    pub(crate) fn training(&self) -> &Training {
        &self.training
    }

    /// Waits for all work on the GPU.
    pub(crate) fn synchronize(&self) -> Result<(), Failure> {
        Ok(self.device.synchronize()?)
    }

    /// Runs a step.
    #[instrument(skip_all)]
    pub(crate) fn train_step(&mut self, step: u64) -> Result<(), Failure> {
        self.lead.wait(step)?;
        info_span!("data").in_scope(|| self.batches.load(step, &self.device, self.work))?;
        if let Some(kernel) = &mut self.custom_kernel {
            kernel.run(&self.device, self.training.blocks, self.training.iterations)?;
        }
        match &self.graph {
            Some(graph) => info_span!("graph").in_scope(|| graph.launch())?,
            None => self.compute()?,
        }
        self.batches.used(step, &self.device)?;
        if self.training.read_back {
            info_span!("metrics").in_scope(|| self.device.read(self.activations))?;
        }
        if self.training.checkpoint && Training::is_last_of(step, Training::CHECKPOINT_EVERY) {
            let _span = info_span!("checkpoint").entered();
            self.device.read(self.activations)?;
            black_box(self.work.spend(Self::CHECKPOINT));
        }
        if Training::is_last_of(step, Training::READ_LOSS_EVERY) {
            info_span!("loss").in_scope(|| self.read_scalar())?;
        }
        Ok(self.lead.end(step, &self.device)?)
    }

    /// Launches the kernels of a step.
    fn compute(&mut self) -> Result<(), Failure> {
        for _ in 0..self.training.forwards {
            info_span!("forward").in_scope(|| self.layers(Kernel::Forward, 1))?;
        }
        info_span!("loss").in_scope(|| self.launch(Kernel::Loss))?;
        // The gradients of a product are two products.
        info_span!("backward").in_scope(|| self.layers(Kernel::Backward, 2))?;
        info_span!("optimizer")
            .in_scope(|| (0..Training::OPTIMIZER_KERNELS).try_for_each(|_| self.launch(Kernel::Optimizer)))
    }

    /// Reads a number that the GPU has computed into ordinary memory, as frameworks do.
    fn read_scalar(&self) -> Result<(), Failure> {
        let mut scalar = [0; 4];
        self.device.read(&mut scalar)?;
        black_box(scalar);
        Ok(())
    }

    /// Launches a kernel that is not part of a layer.
    fn launch(&self, kernel: Kernel) -> Result<(), Failure> {
        Ok(self.device.launch(kernel, self.training.blocks, self.training.iterations)?)
    }

    /// Launches the kernels of all layers in one direction.
    fn layers(&mut self, kernel: Kernel, products: u32) -> Result<(), Failure> {
        (0..self.training.layers).try_for_each(|_| info_span!("layer").in_scope(|| self.layer(kernel, products)))
    }

    /// Launches the kernels of a layer.
    fn layer(&mut self, kernel: Kernel, products: u32) -> Result<(), Failure> {
        self.buffers.with(|buffer| {
            if let Some(product) = &mut self.product {
                (0..products).try_for_each(|_| product.multiply())?;
            }
            let memory = buffer.unwrap_or(self.device.activations);
            for _ in 0..self.training.kernels_per_layer {
                if self.training.augment {
                    info_span!("statistics").in_scope(|| black_box(self.work.spend(Self::AUGMENT)));
                }
                self.device.launch_to(kernel, self.training.blocks, self.training.iterations, memory)?;
            }
            Ok::<_, Failure>(())
        })?;
        if self.training.read_norms && matches!(kernel, Kernel::Backward) {
            info_span!("norm").in_scope(|| self.read_scalar())?;
        }
        if self.training.synchronize { self.synchronize() } else { Ok(()) }
    }

    /// Captures the kernels of a step in a graph.
    fn capture(&mut self) -> Result<CudaGraph, Failure> {
        let stream = self.device.stream.clone();
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        self.compute()?;
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags)?.ok_or("nothing was captured")?;
        graph.upload()?;
        Ok(graph)
    }
}
