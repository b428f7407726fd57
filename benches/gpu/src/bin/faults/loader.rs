//! Threads that make batches ahead of the training.

use crate::host_work::HostWork;
use std::{
    io,
    sync::mpsc::{Receiver, RecvError, sync_channel},
    thread,
    time::Duration,
};
use tracing::info_span;

/// Threads that make batches, and the bounded queue that the batches come from. The threads end when it is dropped.
#[derive(Debug)]
pub(crate) struct Loader {
    batches: Receiver<u64>,
}

impl Loader {
    /// Time that making a batch takes.
    pub(crate) const BATCH: Duration = Duration::from_millis(1);
    /// One thread would be slower than the GPU.
    const THREADS: usize = 4;
    /// Batches in the queue.
    const AHEAD: usize = 2;

    /// Starts the threads.
    pub(crate) fn start(work: HostWork) -> io::Result<Self> {
        let (sender, batches) = sync_channel(Self::AHEAD);
        for number in 0..Self::THREADS {
            let sender = sender.clone();
            let run = move || while sender.send(info_span!("prefetch").in_scope(|| work.spend(Self::BATCH))).is_ok() {};
            thread::Builder::new().name(format!("loader {number}")).spawn(run)?;
        }
        Ok(Self { batches })
    }

    /// Returns the next batch, as soon as there is one.
    pub(crate) fn next(&self) -> Result<u64, RecvError> {
        self.batches.recv()
    }
}
