//! The activity that is recorded of a device, or the reason why none is.

use std::fmt;

/// The activity of a device that can be recorded in addition to spans; displayed as a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Coverage {
    /// Operations with shapes and FLOPs, which Burn reports on devices with fusion.
    pub operations: bool,
    /// Kernels, copies and memory, which CUPTI reports on CUDA devices.
    pub kernels: bool,
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.operations, self.kernels) {
            (true, true) => "spans, operations and GPU activity are recorded",
            (true, false) => "spans and operations are recorded; GPU activity is only seen on CUDA devices",
            (false, true) => {
                "spans and GPU activity are recorded; operations are only seen with Burn's feature `fusion`"
            }
            (false, false) => {
                "spans are recorded; operations are only seen on devices with fusion, GPU activity on CUDA devices"
            }
        })
    }
}

/// The reason why [`attach`](crate::attach) failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// Another library observes Burn's launches, and Burn has room for one observer.
    ObserverTaken,
    /// A profiler is already attached to the device.
    AlreadyAttached,
    /// All threads share one stream, by Burn's `StreamPolicy::Single`, so work cannot be attributed to threads.
    SingleStream,
    /// This device needs a feature of this crate that is not enabled.
    MissingFeature(&'static str),
    /// The device does not work; contains Burn's message.
    Device(String),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ObserverTaken => {
                f.write_str("another library observes Burn's launches, and Burn has room for one observer")
            }
            Self::AlreadyAttached => f.write_str("a profiler is already attached to the device"),
            Self::SingleStream => f.write_str(
                "all threads share one stream (Burn's `StreamPolicy::Single`), so work cannot be attributed to threads",
            ),
            Self::MissingFeature(feature) => {
                write!(f, "this device needs the feature `{feature}` of kernspan-burn, which is not enabled")
            }
            Self::Device(message) => write!(f, "the device does not work: {message}"),
        }
    }
}

impl std::error::Error for AttachError {}
