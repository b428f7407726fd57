//! Profiles that could not be written.

use crate::file::FileError;
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Decides which failures to write a profile are reported.
///
/// A folder that cannot be written fails for every window. Of consecutive failures for the same reason, only the first
/// is reported at once; the others are counted, and their number is reported at the end. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct FailedProfiles {
    /// The reason of the last failure; `None` if the last profile was written.
    reason: Option<String>,
    unreported: Arc<AtomicU64>,
}

impl FailedProfiles {
    /// Notes that a profile was written.
    pub(super) fn written(&mut self) {
        self.reason = None;
    }

    /// Notes that a profile could not be written, and returns whether to report it now.
    pub(super) fn failed(&mut self, error: &FileError) -> bool {
        // Every window has its own path, so the causes are compared.
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        let is_new = self.reason.as_ref() != Some(&reason);
        self.reason = Some(reason);
        if !is_new {
            self.unreported.fetch_add(1, Ordering::Relaxed);
        }
        is_new
    }

    /// Returns the number of failures that were not reported.
    pub(super) fn unreported(&self) -> u64 {
        self.unreported.load(Ordering::Relaxed)
    }
}
