//! The collectives of a window, by whatever means they were recorded: kernels of NCCL, and spans with `collective.*`
//! fields.

use super::{
    intervals::{Interval, Intervals},
    kinds::WorkKind,
};
use crate::trace::{DeviceId, Span, SpanId, Step, Timestamp, Trace, Value, Work, WorkId, convention};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// A collective as one rank took part in it, in a whole step: see [`collective_calls`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectiveCall {
    /// The number of the step.
    pub step: u64,
    /// The name of the group of ranks; for `send` and `receive`, with both ranks.
    pub group: Arc<str>,
    /// Its number among those of the step and the group: the same on all ranks. Collectives and [pairwise
    /// exchanges](CollectiveOperation::is_pairwise) count separately.
    pub number: u32,
    /// The operation.
    pub operation: CollectiveOperation,
    /// The number of ranks in the group; 0 if it is not known.
    pub group_size: u32,
    /// The rank that sends to all others, or receives from them, if the operation has one and it is known.
    pub root: Option<u32>,
    /// The size as NCCL's tests define it: that of the larger one of a rank's input and output. 0 if it is not known.
    pub bytes: u64,
    /// When the rank began it.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// The part of the time in which no kernel of the rank computes.
    pub exposed: Duration,
    /// The type of the elements, as the framework calls it; empty if it is not known.
    pub dtype: String,
    /// The span that it belongs to, or is.
    pub span: Option<SpanId>,
    /// The kernel; `None` for a span.
    pub work: Option<WorkId>,
}

impl CollectiveCall {
    /// The time from start to end, including that of waiting for other ranks.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }

    /// Which ranks need data of which.
    pub fn flow(&self) -> CollectiveFlow {
        use CollectiveOperation as Op;
        match (self.operation, self.root) {
            (Op::AllReduce | Op::AllGather | Op::ReduceScatter | Op::AllToAll | Op::Barrier, _) => CollectiveFlow::All,
            (Op::Broadcast | Op::Scatter | Op::Send | Op::Receive, Some(root)) => CollectiveFlow::From(root),
            (Op::Reduce | Op::Gather, Some(root)) => CollectiveFlow::To(root),
            _ => CollectiveFlow::Unknown,
        }
    }
}

/// Which ranks of a collective cannot end before which others have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollectiveFlow {
    /// None before any other, as in an all-reduce.
    All,
    /// None before this rank, as in a broadcast.
    From(u32),
    /// This rank not before any other, as in a reduce.
    To(u32),
    /// It is not known.
    Unknown,
}

/// The operation of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum CollectiveOperation {
    /// All ranks get the sum, or another reduction, of all data.
    AllReduce,
    /// All ranks get the data of all.
    AllGather,
    /// Each rank gets a part of the reduction of all data.
    ReduceScatter,
    /// Each rank gets a part of the data of each other.
    AllToAll,
    /// Like [`AllToAll`](Self::AllToAll), with parts of any size, which may be empty.
    AllToAllV,
    /// No rank goes on before all have arrived.
    Barrier,
    /// All ranks get the data of one.
    Broadcast,
    /// One rank gets the reduction of all data.
    Reduce,
    /// One rank gets the data of all.
    Gather,
    /// Each rank gets a part of the data of one.
    Scatter,
    /// One rank sends data to another.
    Send,
    /// One rank receives data from another.
    Receive,
    /// Both in one kernel, as NCCL does.
    SendReceive,
    /// Another or unknown operation.
    Other,
}

impl CollectiveOperation {
    /// All operations, with the words that names are recognised by: in this order, as some contain others.
    const WORDS: [(&'static str, Self); 14] = [
        ("alltoallv", Self::AllToAllV),
        ("alltoall", Self::AllToAll),
        ("allreduce", Self::AllReduce),
        ("allgather", Self::AllGather),
        ("reducescatter", Self::ReduceScatter),
        ("barrier", Self::Barrier),
        ("broadcast", Self::Broadcast),
        ("sendrecv", Self::SendReceive),
        ("reduce", Self::Reduce),
        ("gather", Self::Gather),
        ("scatter", Self::Scatter),
        ("send", Self::Send),
        ("receive", Self::Receive),
        ("recv", Self::Receive),
    ];

    /// Returns the operation of a name, whatever its capitals and separators: `all_reduce`, `_allgather_base`,
    /// `ncclDevKernel_AllReduce_Sum_f32_RING_LL`.
    ///
    /// ```
    /// use kernspan::analysis::CollectiveOperation;
    ///
    /// assert_eq!(CollectiveOperation::of_name("_reduce_scatter_base"), CollectiveOperation::ReduceScatter);
    /// assert_eq!(CollectiveOperation::of_name("all-reduce").bus_factor(4), 1.5);
    /// ```
    pub fn of_name(name: &str) -> Self {
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        Self::WORDS.into_iter().find(|(word, _)| name.contains(word)).map_or(Self::Other, |(_, operation)| operation)
    }

    /// Returns the name: `all-reduce`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::AllToAllV => "all-to-all-v",
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Send => "send",
            Self::Receive => "receive",
            Self::SendReceive => "send-receive",
            Self::Other => "other",
        }
    }

    /// Returns whether it is between two ranks. They do not wait for each other as those of a collective do: a stage
    /// of a pipeline waits for the one before it even if none is late.
    pub fn is_pairwise(self) -> bool {
        matches!(self, Self::Send | Self::Receive | Self::SendReceive)
    }

    /// Returns the bus bandwidth as a multiple of the algorithm bandwidth, as NCCL's tests define it
    /// (`doc/PERFORMANCE.md` of `nccl-tests`): how much each link carries for each byte of the result.
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let others = f64::from(ranks.max(1) - 1) / f64::from(ranks.max(1));
        match self {
            Self::AllReduce => 2.0 * others,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::AllToAllV => others,
            Self::Gather | Self::Scatter => others,
            _ => 1.0,
        }
    }
}

impl fmt::Display for CollectiveOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Returns the collectives in the whole steps of a window, in the order of their start.
///
/// Kernels of NCCL are collectives, with the facts that PyTorch has recorded or that the fields of a span around them
/// give. Spans with a field [`collective.operation`](convention::COLLECTIVE_OPERATION) are collectives, too, unless a
/// kernel of NCCL belongs to them: those of MPI, gloo and the like.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for call in kernspan::analysis::collective_calls(trace) {
///     println!("{} of {}: {:?}, {:?} exposed", call.operation, call.group, call.duration(), call.exposed);
/// }
/// # }
/// ```
pub fn collective_calls(trace: &Trace) -> Vec<CollectiveCall> {
    let computing = computing(trace);
    let rank = trace.metadata().rank;
    let mut calls: Vec<CollectiveCall> = Vec::new();
    let mut counted: FxHashSet<SpanId> = FxHashSet::default();
    for work in trace.work().filter(|work| is_collective(*work)) {
        let span = work.span().and_then(described);
        counted.extend(span.map(Span::id));
        let Some(step) = whole(work.step()) else { continue };
        let exposed = exposed(computing.get(&work.stream().device()), work.start(), work.end());
        calls.push(CollectiveCall { exposed, ..of_work(work, span, step, rank) });
    }
    let all = computing.into_values().flat_map(|it| it.between(Timestamp::default(), LAST).collect::<Vec<_>>());
    let all = Intervals::new(all.collect());
    for span in trace.spans().filter(|span| span.field(convention::COLLECTIVE_OPERATION).is_some()) {
        let Some(step) = whole(span.step()).filter(|_| !span.cut().any() && !counted.contains(&span.id())) else {
            continue;
        };
        let exposed = exposed(Some(&all), span.start(), span.end());
        calls.push(CollectiveCall { exposed, ..of_span(span, step, rank) });
    }
    calls.sort_by_key(|call| call.start);
    let mut numbers: FxHashMap<(u64, bool, Arc<str>), u32> = FxHashMap::default();
    for call in &mut calls {
        let key = (call.step, call.operation.is_pairwise(), Arc::clone(&call.group));
        let number = numbers.entry(key).or_default();
        call.number = *number;
        *number += 1;
    }
    calls
}

/// Returns whether work exchanges data with other ranks, as kernels of NCCL do.
pub fn is_collective(work: Work<'_>) -> bool {
    WorkKind::of(work) == WorkKind::Communication
}

/// After all work.
const LAST: Timestamp = Timestamp::from_unix_nanos(u64::MAX);

fn whole(step: Option<&Step>) -> Option<u64> {
    step.filter(|step| !step.cut().any()).map(Step::number)
}

/// Returns when each GPU computes.
fn computing(trace: &Trace) -> BTreeMap<DeviceId, Intervals> {
    let mut gpus: BTreeMap<DeviceId, Vec<Interval>> = BTreeMap::new();
    for work in trace.work().filter(|work| WorkKind::of(*work) == WorkKind::Compute) {
        let interval = Interval { start: work.start(), end: work.end(), requested: None };
        gpus.entry(work.stream().device()).or_default().push(interval);
    }
    gpus.into_iter().map(|(gpu, intervals)| (gpu, Intervals::new(intervals))).collect()
}

fn exposed(computing: Option<&Intervals>, start: Timestamp, end: Timestamp) -> Duration {
    end.since(start).saturating_sub(computing.map_or(Duration::ZERO, |computing| computing.covered(start, end)))
}

/// Returns the span that describes a collective: this one, or one around it.
fn described(span: Span<'_>) -> Option<Span<'_>> {
    span.stack().find(|span| span.field(convention::COLLECTIVE_OPERATION).is_some())
}

fn of_work(work: Work<'_>, span: Option<Span<'_>>, step: u64, rank: u32) -> CollectiveCall {
    let mut call = span.map_or_else(|| empty(step), |span| of_span(span, step, rank));
    if let Some(known) = work.collective() {
        let ranks = u32::try_from(known.ranks.len()).unwrap_or(u32::MAX);
        call.operation = CollectiveOperation::of_name(&known.operation);
        call.group = Arc::clone(&known.group);
        call.group_size = if known.group_size > 0 { known.group_size } else { ranks };
        call.bytes = known.elements_in.max(known.elements_out).saturating_mul(dtype_bytes(&known.dtype));
        call.dtype.clone_from(&known.dtype);
    } else if span.is_none() {
        call.operation = work.kernel().map_or(CollectiveOperation::Other, |it| CollectiveOperation::of_name(&it.name));
    }
    (call.start, call.end) = (work.start(), work.end());
    (call.span, call.work) = (work.span().map(Span::id), Some(work.id()));
    call
}

fn of_span(span: Span<'_>, step: u64, rank: u32) -> CollectiveCall {
    let number = |name| span.field(name).and_then(Value::as_u64);
    let small = |name| number(name).and_then(|number| u32::try_from(number).ok());
    let text = |name| span.field(name).and_then(Value::as_str).unwrap_or_default();
    let operation = CollectiveOperation::of_name(text(convention::COLLECTIVE_OPERATION));
    let mut root = small(convention::COLLECTIVE_ROOT);
    let mut group: Arc<str> = text(convention::COLLECTIVE_GROUP).into();
    let ends = match (operation, small(convention::COLLECTIVE_PEER)) {
        (CollectiveOperation::Send, Some(peer)) => Some((rank, peer)),
        (CollectiveOperation::Receive, Some(peer)) => Some((peer, rank)),
        _ => None,
    };
    if let Some((from, to)) = ends {
        (root, group) = (Some(from), format!("{group}:{from}→{to}").into());
    }
    CollectiveCall {
        group,
        operation,
        group_size: small(convention::COLLECTIVE_RANKS).unwrap_or(if ends.is_some() { 2 } else { 0 }),
        root,
        bytes: number(convention::COLLECTIVE_BYTES).unwrap_or(0),
        start: span.start(),
        end: span.end(),
        span: Some(span.id()),
        ..empty(step)
    }
}

fn empty(step: u64) -> CollectiveCall {
    CollectiveCall {
        step,
        group: Arc::default(),
        number: 0,
        operation: CollectiveOperation::Other,
        group_size: 0,
        root: None,
        bytes: 0,
        start: Timestamp::default(),
        end: Timestamp::default(),
        exposed: Duration::ZERO,
        dtype: String::new(),
        span: None,
        work: None,
    }
}

/// Returns the size of an element in bytes, by the name that PyTorch, NCCL or Rust has for its type; 0 if it is not
/// known.
fn dtype_bytes(dtype: &str) -> u64 {
    let name = dtype.to_ascii_lowercase();
    let name = name.trim_start_matches("nccl").trim_start_matches("c10::");
    match name {
        "complexdouble" => 16,
        "double" | "long" | "float64" | "f64" | "int64" | "i64" | "uint64" | "u64" | "complexfloat" => 8,
        "float" | "int" | "float32" | "f32" | "int32" | "i32" | "uint32" | "u32" | "qint32" | "complexhalf" => 4,
        "half" | "bfloat16" | "float16" | "f16" | "bf16" | "short" | "int16" | "i16" | "uint16" | "u16" => 2,
        "byte" | "char" | "bool" | "int8" | "i8" | "uint8" | "u8" | "qint8" | "quint8" => 1,
        _ if name.starts_with("float8") || name.starts_with("f8") => 1,
        _ => 0,
    }
}
