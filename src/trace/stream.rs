//! Streams: the rows of GPU work.

use super::{DeviceId, id::define_id};

define_id! {
    /// Names a [`Stream`] of one trace.
    pub struct StreamId;

    /// The index of the stream in [`Trace::streams`](crate::Trace::streams).
    pub fn index;
}

impl Default for StreamId {
    /// Returns the id of the first stream.
    fn default() -> Self {
        Self::new(0)
    }
}

/// A row of GPU work that does not overlap: a stream of a device, or a further row for concurrent work on that stream.
///
/// Kernels of one stream may overlap, through programmatic dependent launch or as branches of a graph, and no viewer
/// can draw them on one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    pub(crate) device: DeviceId,
    pub(crate) context: u32,
    pub(crate) number: u32,
    pub(crate) overlap: u32,
}

impl Stream {
    /// The device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The driver's number for the context.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// The driver's number for the stream, unique in its context.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The number of the row within its stream: 0 for the main one; 1, 2, … for rows of overlapping work.
    pub fn overlap(&self) -> u32 {
        self.overlap
    }

    /// A display name: `stream 7`, with the number of the row if that is not 0.
    pub fn label(&self) -> String {
        match self.overlap {
            0 => format!("stream {}", self.number),
            overlap => format!("stream {} (overlap {overlap})", self.number),
        }
    }
}
