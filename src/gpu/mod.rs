//! The GPU side of capture: what was launched, copied and waited for, as the vendor's library tells it.
//!
//! The calls that cause it are in the host's lanes, between the spans around them; what came of them is read here, and
//! [`gather`]ed until a window has all that is its own.

mod activity;
mod calls;
#[cfg_attr(all(feature = "cuda", target_os = "linux"), path = "cupti/mod.rs")]
#[cfg_attr(not(all(feature = "cuda", target_os = "linux")), path = "absent.rs")]
mod cupti;
mod detach;
mod gather;
mod record;

pub use self::activity::Activity;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use self::cupti::replay;
pub(crate) use self::{
    activity::Activities,
    cupti::{CollectedSender, RawRecords, Source, Started, write_raw},
    detach::Detach,
    record::{Function, GpuRecording, OverheadRecord, Pool, WaitRecord, WorkRecord},
};

/// What a user asks of the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuSettings {
    pub(crate) activities: Activities,
    pub(crate) detach: Detach,
    /// Whether records are also kept as they were.
    pub(crate) keep_raw: bool,
}
