//! The GPU side of capture: what was launched, copied and waited for, as the vendor's library tells it.
//!
//! The calls that cause it are in the host's lanes, between the spans around them; what came of them is read here, and
//! [`gather`]ed until a window has all that is its own.

mod activity;
#[cfg_attr(all(feature = "cuda", target_os = "linux"), path = "cupti/mod.rs")]
#[cfg_attr(not(all(feature = "cuda", target_os = "linux")), path = "absent.rs")]
mod cupti;
mod gather;
mod record;

pub use self::activity::Activity;
pub(crate) use self::{
    activity::Activities,
    cupti::{CollectedSender, Source, Started},
    record::{Function, GpuRecording, OverheadRecord, WaitRecord, WorkRecord},
};

use std::time::Duration;

/// When to let the library go between windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detach {
    /// After so long without a window.
    pub(crate) after: Duration,
    /// At the most so often.
    pub(crate) most: u32,
}
