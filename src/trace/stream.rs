use super::DeviceId;

/// Names a [`Stream`] of one trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u32);

impl StreamId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place of the stream in [`Trace::streams`](crate::Trace::streams).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A row of work that does not overlap: a stream of a device, or what of a stream ran beside other work of it.
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

    /// The driver's number of the context.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// The driver's number of the stream, unique in its context.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// 0 for the stream's own row. Kernels of one stream may overlap (programmatic dependent launch, branches of a graph), and
    /// no viewer draws ranges that cross; those that do are on the rows 1, 2, … of their stream.
    pub fn overlap(&self) -> u32 {
        self.overlap
    }

    /// A name for people: `stream 7`, with the overlap if there is one.
    pub fn label(&self) -> String {
        match self.overlap {
            0 => format!("stream {}", self.number),
            overlap => format!("stream {} (overlap {overlap})", self.number),
        }
    }
}
