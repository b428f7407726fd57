//! Messages to the thread that reads CUPTI's buffers.

use super::buffer::Buffer;
use crate::{
    recording::{Pool, Recording},
    schedule::WaitLength,
};
use std::collections::HashMap;

/// A message to the [reader](super::reader)'s thread.
#[derive(Debug)]
pub(super) enum Message {
    /// A buffer, and the number of bytes of records in it.
    Filled(Buffer, usize),
    /// A window is about to open; the memory pools of the devices.
    Opening(HashMap<u32, Pool>),
    /// The window is open; the highest correlation id of a call entered before.
    Opened { last_before: u32 },
    /// No window is open, and none will be for this long.
    Idle(WaitLength),
    /// The host's records of a window have been collected.
    Collected(Box<Recording>),
    /// The last window has been collected.
    Finish,
}
