//! The claim of a source to be the only client of CUPTI in the process.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there is a source. CUPTI supports one client per process, so there is one source at a time.
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// Marks a source as the process's CUPTI client until dropped.
#[derive(Debug)]
pub(super) struct Claim;

impl Claim {
    /// Takes the claim. Returns `None` if another source has it.
    pub(super) fn take() -> Option<Self> {
        (!CLAIMED.swap(true, Ordering::AcqRel)).then_some(Self)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.store(false, Ordering::Release);
    }
}
