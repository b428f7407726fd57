//! The work of each CUDA stream, in order of time.

use crate::trace::{DeviceId, Trace, Work};
use std::collections::BTreeMap;

/// The device, context and number of a stream.
pub(super) type StreamKey = (DeviceId, u32, u32);

/// Returns the work of each stream in the order of its starts, that of all its rows together.
pub(super) fn stream_work(trace: &Trace) -> BTreeMap<StreamKey, Vec<Work<'_>>> {
    let mut streams: BTreeMap<StreamKey, Vec<Work<'_>>> = BTreeMap::new();
    for work in trace.work() {
        let stream = work.stream();
        streams.entry((stream.device(), stream.context(), stream.number())).or_default().push(work);
    }
    streams.values_mut().for_each(|work| work.sort_by_key(|work| work.start()));
    streams
}
