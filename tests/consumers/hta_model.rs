//! The analyses of HolisticTraceAnalysis as it defines them, computed from a trace, in its unit and with its errors.

use kernspan::{
    Trace,
    trace::{ApiCall, Work},
};
use std::collections::{BTreeMap, BTreeSet};

/// Functions whose work HTA counts in its queue lengths.
const QUEUED: [&str; 5] =
    ["cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"];

/// Functions that HTA has launch statistics of.
const LAUNCHES: [&str; 4] = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"];

/// The names of calls in the file, by correlation id. Those of the trace are the driver's, whatever the file says.
pub(crate) type CallNames = BTreeMap<u32, String>;

/// The work of a trace as HTA sees it.
pub(crate) struct Model<'a> {
    pieces: Vec<Piece<'a>>,
    calls: &'a CallNames,
    /// The time at which HTA's clock is at zero, in nanoseconds since 1970.
    origin: u64,
    /// The number of nanoseconds in HTA's unit: 1, or 1000 for microseconds.
    unit: f64,
}

/// A piece of work, or a wait on a stream, which HTA takes for work.
struct Piece<'a> {
    name: String,
    stream: u32,
    start: u64,
    end: u64,
    call: Option<ApiCall<'a>>,
    is_wait: bool,
}

impl<'a> Model<'a> {
    pub(crate) fn new(trace: &'a Trace, calls: &'a CallNames, origin: u64, unit: f64) -> Self {
        let work = trace.work().filter(|work| is_kept(trace, work.call())).map(|work| Piece {
            name: work.name().to_string(),
            stream: work.stream().number(),
            start: work.start().as_unix_nanos(),
            end: work.end().as_unix_nanos(),
            call: work.call(),
            is_wait: false,
        });
        let waits = trace.waits().filter(|wait| is_kept(trace, wait.call())).filter_map(|wait| {
            Some(Piece {
                name: wait.kind().as_str().to_owned(),
                stream: wait.stream()?,
                start: wait.start().as_unix_nanos(),
                end: wait.end().as_unix_nanos(),
                call: wait.call(),
                is_wait: true,
            })
        });
        Self { pieces: work.chain(waits).collect(), calls, origin, unit }
    }

    /// Returns a moment in HTA's unit. It is a difference of integers, so that HTA's own number is the same.
    pub(crate) fn at(&self, nanos: u64) -> f64 {
        (nanos as i64 - self.origin as i64) as f64 / self.unit
    }

    fn duration(&self, piece: &Piece<'_>) -> f64 {
        (piece.end - piece.start) as f64 / self.unit
    }

    /// Returns the sum, maximum, minimum, mean and standard deviation of the times of each name.
    pub(crate) fn kernels(&self) -> BTreeMap<String, [f64; 5]> {
        let mut names: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for piece in self.pieces.iter().filter(|piece| piece.kind() != 0) {
            names.entry(piece.name.clone()).or_default().push(self.duration(piece));
        }
        let statistics = |times: Vec<f64>| {
            let (count, sum) = (times.len() as f64, times.iter().sum::<f64>());
            let mean = sum / count;
            let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
            let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
            let (longest, shortest) = (times.iter().copied().fold(0.0, f64::max), times.iter().copied());
            [sum, longest, shortest.fold(f64::INFINITY, f64::min), mean, deviation]
        };
        names.into_iter().map(|(name, times)| (name, statistics(times))).collect()
    }

    /// Returns the host wait, kernel wait and other idle time of each stream.
    ///
    /// Overlaps are negative gaps, and a gap begins at the end of the work that began last.
    pub(crate) fn idle(&self, kernel_delay: f64) -> BTreeMap<u32, [f64; 3]> {
        let mut streams: BTreeMap<u32, Vec<&Piece<'_>>> = BTreeMap::new();
        for piece in self.pieces.iter().filter(|piece| !piece.is_wait) {
            streams.entry(piece.stream).or_default().push(piece);
        }
        let of_stream = |mut pieces: Vec<&Piece<'_>>| {
            pieces.sort_by_key(|piece| piece.start);
            let mut sums = [0.0; 3];
            for pair in pieces.windows(2) {
                let (end, start) = (pair[0].end, pair[1].start);
                let gap = self.at(start) - self.at(end);
                let waits_for_host = pair[1].call.is_some_and(|call| call.start().as_unix_nanos() > end);
                sums[if waits_for_host { 0 } else { usize::from(gap >= kernel_delay) + 1 }] += gap;
            }
            sums
        };
        streams.into_iter().map(|(stream, pieces)| (stream, of_stream(pieces))).collect()
    }

    /// Returns the length of each stream's queue after each moment at which it changes.
    pub(crate) fn queues(&self) -> BTreeMap<u32, BTreeMap<u64, i64>> {
        let mut streams: BTreeMap<u32, BTreeMap<u64, i64>> = BTreeMap::new();
        for piece in self.pieces.iter().filter(|piece| !piece.is_wait) {
            let Some(call) = piece.call.filter(|call| is_queued(*call, self.calls)) else { continue };
            let changes = streams.entry(piece.stream).or_default();
            *changes.entry(call.start().as_unix_nanos()).or_default() += 1;
            *changes.entry(piece.start).or_default() -= 1;
        }
        for changes in streams.values_mut() {
            let mut length = 0;
            for change in changes.values_mut() {
                length += *change;
                *change = length;
            }
        }
        streams
    }

    /// Returns the host's time, the GPU's time and the delay of each launch, by its correlation id.
    pub(crate) fn launches(&self) -> BTreeMap<u32, [f64; 3]> {
        let mut launches = BTreeMap::new();
        for piece in self.pieces.iter().filter(|piece| !piece.is_wait) {
            let Some(call) = piece.call.filter(|call| is_one_of(*call, self.calls, &LAUNCHES)) else { continue };
            let host = call.duration().as_nanos() as f64 / self.unit;
            let delay = piece.start.saturating_sub(call.end().as_unix_nanos()) as f64 / self.unit;
            launches.insert(call.correlation(), [host, self.duration(piece), delay]);
        }
        launches
    }
}

impl Piece<'_> {
    /// Returns the bit of the kind that HTA takes it for; 0 for none.
    fn kind(&self) -> u8 {
        hta_kind(&self.name)
    }
}

/// Returns the bit of the kind that HTA takes work of this name for; 0 for none.
fn hta_kind(name: &str) -> u8 {
    match () {
        () if name.starts_with("nccl") && name.contains("Kernel") => 2,
        () if ["Memcpy", "Memset", "dma"].iter().any(|start| name.starts_with(start)) => 4,
        () if name.contains("Memcpy") || name.contains("Sync") => 0,
        () => 1,
    }
}

/// Returns whether HTA keeps work of this call. If there are several steps, it removes all work whose call is not in
/// the trace, or is after the last step.
fn is_kept(trace: &Trace, call: Option<ApiCall<'_>>) -> bool {
    let last = trace.steps().iter().map(kernspan::trace::Step::end).max();
    trace.steps().len() < 2 || call.is_some_and(|call| Some(call.start()) <= last)
}

/// Returns whether HTA counts work of this call in the queue of its stream.
pub(crate) fn is_queued(call: ApiCall<'_>, calls: &CallNames) -> bool {
    is_one_of(call, calls, &QUEUED)
}

fn is_one_of(call: ApiCall<'_>, calls: &CallNames, names: &[&str]) -> bool {
    calls.get(&call.correlation()).is_some_and(|name| names.contains(&name.as_str()))
}

/// Returns whether HTA sees the same work of the same kinds as the trace has, on one GPU.
pub(crate) fn is_seen_as_it_is(trace: &Trace) -> bool {
    let is_same = |work: Work<'_>| {
        let kind = match work.kernel() {
            Some(kernel) if kernel.name.starts_with("nccl") => 2,
            Some(_) => 1,
            None => 4,
        };
        is_kept(trace, work.call()) && hta_kind(&work.name().to_string()) == kind
    };
    let devices: BTreeSet<_> = trace.work().map(|work| work.stream().device()).collect();
    let waits = trace.waits().filter(|wait| wait.stream().is_some() && is_kept(trace, wait.call()));
    devices.len() == 1 && waits.count() == 0 && trace.work().all(is_same)
}

/// Returns the streams whose numbers are theirs alone, and whose work does not overlap and is all kept.
pub(crate) fn plain_streams(trace: &Trace) -> BTreeSet<u32> {
    let mut rows: BTreeMap<u32, usize> = BTreeMap::new();
    trace.streams().iter().for_each(|stream| *rows.entry(stream.number()).or_default() += 1);
    let dropped: BTreeSet<_> =
        trace.work().filter(|work| !is_kept(trace, work.call())).map(|work| work.stream().number()).collect();
    rows.into_iter()
        .filter(|(stream, rows)| *rows == 1 && !dropped.contains(stream))
        .map(|(stream, _)| stream)
        .collect()
}
