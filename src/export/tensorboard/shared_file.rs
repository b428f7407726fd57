//! An events file that two exporters share.

use super::events_file::EventsFile;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The events file of a run, shared by the exporter of windows and the exporter of steps.
#[derive(Clone, Debug)]
pub(super) struct SharedFile(Arc<Mutex<EventsFile>>);

impl SharedFile {
    pub(super) fn new(file: EventsFile) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, EventsFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
