use super::buffer::Buffer;
use crate::{
    recording::{Pool, Recording},
    schedule::WaitLength,
};
use std::collections::HashMap;

/// A message to the [reader](super::reader)'s thread.
#[derive(Debug)]
pub(super) enum Message {
    /// A buffer with so many bytes of records.
    Filled(Buffer, usize),
    /// A window is about to open; with the devices' pools.
    Opening(HashMap<u32, Pool>),
    /// It is open; with the highest correlation of a call that was entered before.
    Opened { last_before: u32 },
    /// No window is open, nor will be for so long.
    Rest(WaitLength),
    /// A window has been collected on the host's side.
    Collected(Box<Recording>),
    /// The last window has been collected.
    Finish,
}
