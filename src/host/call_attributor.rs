//! Who knows on whose behalf each call of a thread is made, where a thread serves several others.

use crate::recording::Origin;
use std::fmt;

/// Is asked after each call.
pub(super) struct CallAttributor(pub(super) Box<dyn Fn(DeviceWork) -> Option<Origin> + Send>);

impl fmt::Debug for CallAttributor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallAttributor").finish_non_exhaustive()
    }
}

/// What a thread has done with a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceWork {
    /// Launched a kernel or a graph of them.
    Launch,
    /// Copied or filled memory.
    #[non_exhaustive]
    Copy {
        /// How much was copied to a device. Not known of other copies.
        bytes: Option<u64>,
    },
    /// Allocated or freed memory.
    Memory,
    /// Loaded code.
    Load,
    /// Something else: it waited, say.
    Other,
}
