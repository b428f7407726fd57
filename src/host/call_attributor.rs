//! The callback that decides which span a call on a shared thread belongs to.

use crate::recording::Origin;
use std::fmt;

/// A callback that decides which span a call on a shared thread belongs to. It is called after each call, with the kind
/// of work done.
pub(super) struct CallAttributor(pub(super) Box<dyn Fn(DeviceWork) -> Option<Origin> + Send>);

impl fmt::Debug for CallAttributor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallAttributor").finish_non_exhaustive()
    }
}

/// The kind of work that a call gave the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceWork {
    /// Launched a kernel or a graph of kernels.
    Launch,
    /// Copied or filled memory.
    #[non_exhaustive]
    Copy {
        /// Bytes copied from the host to a device; `None` for other copies.
        bytes: Option<u64>,
    },
    /// Allocated or freed memory.
    Memory,
    /// Loaded code.
    Load,
    /// Anything else, such as a wait.
    Other,
}
