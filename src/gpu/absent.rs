//! In the place of CUPTI where it is not built in.

use super::{GpuSettings, Pool};
use crate::{
    Error,
    collector::Budget,
    correlate::Recording,
    host::Host,
    schedule::WaitLength,
    trace::{Gpu, GpuProblem, Losses, Trace},
};
use std::{
    collections::HashMap,
    convert::Infallible,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

/// There is none.
#[derive(Debug)]
pub(crate) struct Source(Infallible);

#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) source: Arc<Source>,
    pub(crate) thread: JoinHandle<Losses>,
    pub(crate) collected: CollectedSender,
}

#[derive(Debug)]
pub(crate) struct CollectedSender(Infallible);

impl CollectedSender {
    pub(crate) fn send(&self, _: Recording) {
        match self.0 {}
    }
}

impl Source {
    pub(crate) fn start(
        _: GpuSettings,
        _: &Arc<Host>,
        _: &Arc<Budget>,
        _: impl FnMut(Recording) + Send + 'static,
    ) -> Result<Result<Started, GpuProblem>, Error> {
        Ok(Err(GpuProblem::NotBuiltIn))
    }

    pub(crate) fn gpu(&self) -> Gpu {
        match self.0 {}
    }

    pub(crate) fn prepare(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn open(&self) {
        match self.0 {}
    }

    pub(crate) fn opened(&self) {
        match self.0 {}
    }

    pub(crate) fn rest(&self, _: WaitLength) {
        match self.0 {}
    }

    pub(crate) fn tick(&self) {
        match self.0 {}
    }
}

/// There are none.
#[derive(Clone, Debug)]
pub(crate) struct RawRecords(Infallible);

pub(crate) fn write_raw(_: &Path, _: &Trace, raw: &RawRecords, _: &HashMap<u32, Pool>) -> Result<PathBuf, Error> {
    match raw.0 {}
}
