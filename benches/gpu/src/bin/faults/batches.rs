//! Batches and labels on their way to the GPU.

use crate::{
    Failure,
    device::{Device, allocate, pinned},
    host_work::HostWork,
    loader::Loader,
    training::{BatchMemory, Input, Training},
};
use cudarc::driver::{CudaEvent, CudaStream, DriverError, sys};
use std::{hint::black_box, sync::Arc};

/// Memory for batches and labels on both sides, and the threads that make batches, if there are any.
///
/// All batches are the same bytes, so that nothing has to wait until a copy from the host's memory is done.
#[derive(Debug)]
pub(crate) struct Batches {
    host: &'static [u8],
    device: sys::CUdeviceptr,
    labels: Option<Labels>,
    input: Input,
    loader: Option<Loader>,
    ahead: Option<CopyAhead>,
}

#[derive(Debug)]
struct Labels {
    host: &'static [u8],
    device: sys::CUdeviceptr,
    bytes_per_copy: usize,
}

impl Batches {
    /// Allocates the memory and starts the threads.
    pub(crate) fn new(training: &Training, device: &Device, work: HostWork) -> Result<Self, Failure> {
        let bytes = training.batch_bytes;
        let host: &'static [u8] = match training.batch_memory {
            BatchMemory::Pinned => pinned(bytes)?,
            BatchMemory::Pageable => vec![1; bytes].leak(),
        };
        let labels = match training.label_copies {
            0 => None,
            copies => Some(Labels {
                host: pinned(Training::LABEL_BYTES)?,
                device: allocate(Training::LABEL_BYTES)?,
                bytes_per_copy: Training::LABEL_BYTES.div_ceil(copies),
            }),
        };
        let loader = (training.input == Input::Prefetched).then(|| Loader::start(work)).transpose()?;
        let ahead = training.copy_ahead.then(|| CopyAhead::new(host, device)).transpose()?;
        Ok(Self { host, device: allocate(bytes)?, labels, input: training.input, loader, ahead })
    }

    /// Makes or receives the batch of a step, and copies it.
    pub(crate) fn load(&self, step: u64, device: &Device, work: HostWork) -> Result<(), Failure> {
        match (&self.loader, self.input) {
            (Some(loader), _) => {
                black_box(loader.next()?);
            }
            (None, Input::InStep) => {
                black_box(work.spend(Loader::BATCH));
            }
            (None, _) => {}
        }
        match &self.ahead {
            Some(ahead) => ahead.load(step, self.host, device)?,
            None => device.copy_to(self.device, self.host, &device.stream)?,
        }
        if let Some(labels) = &self.labels {
            for (part, offset) in labels.host.chunks(labels.bytes_per_copy).zip((0..).step_by(labels.bytes_per_copy)) {
                device.copy_to(labels.device + offset, part, &device.stream)?;
            }
        }
        Ok(())
    }

    /// Notes that the kernels of a step, which use its batch, are all launched.
    pub(crate) fn used(&self, step: u64, device: &Device) -> Result<(), DriverError> {
        self.ahead.as_ref().map_or(Ok(()), |ahead| ahead.buffer(step).used.record(&device.stream))
    }
}

/// Copies of batches on a stream of their own, one step ahead, to two buffers that take turns.
#[derive(Debug)]
struct CopyAhead {
    stream: Arc<CudaStream>,
    buffers: [Buffer; 2],
}

#[derive(Debug)]
struct Buffer {
    memory: sys::CUdeviceptr,
    /// The batch is in the buffer.
    copied: CudaEvent,
    /// The kernels that use the batch have run.
    used: CudaEvent,
}

impl CopyAhead {
    /// Allocates the buffers, and copies a batch to each, so that any step may be the first.
    fn new(host: &[u8], device: &Device) -> Result<Self, DriverError> {
        let buffer = || {
            let (copied, used) = (device.context.new_event(None)?, device.context.new_event(None)?);
            Ok::<_, DriverError>(Buffer { memory: allocate(host.len())?, copied, used })
        };
        let ahead = Self { stream: device.context.new_stream()?, buffers: [buffer()?, buffer()?] };
        for step in 0..2 {
            ahead.copy(step, host, device)?;
        }
        Ok(ahead)
    }

    fn buffer(&self, step: u64) -> &Buffer {
        &self.buffers[(step % 2) as usize]
    }

    /// Lets the kernels of a step wait for its batch, and begins to copy the batch of the next.
    fn load(&self, step: u64, host: &[u8], device: &Device) -> Result<(), DriverError> {
        device.stream.wait(&self.buffer(step).copied)?;
        self.copy(step + 1, host, device)
    }

    /// Copies the batch of a step once the step two before, which had the same buffer, is done with it.
    fn copy(&self, step: u64, host: &[u8], device: &Device) -> Result<(), DriverError> {
        let buffer = self.buffer(step);
        self.stream.wait(&buffer.used)?;
        device.copy_to(buffer.memory, host, &self.stream)?;
        buffer.copied.record(&self.stream)
    }
}
