//! The last calls of one communicator: how far each has come.

use kernspan::{analysis::MemoryFrame, trace::Collective};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// A call of NCCL, as its events describe it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    /// The number among the calls of this function, which NCCL gives when it launches the call.
    pub(crate) sequence: Option<u64>,
    /// NCCL's name of the function, such as `AllReduce`.
    pub(crate) function: Arc<str>,
    pub(crate) dtype: Arc<str>,
    pub(crate) count: u64,
    pub(crate) channels: u32,
    pub(crate) algorithm: Arc<str>,
    pub(crate) protocol: Arc<str>,
    /// The other rank of a send or receive.
    pub(crate) peer: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallKind {
    #[default]
    Collective,
    PointToPoint,
    /// A collective without a kernel.
    CopyEngine,
}

/// A call in the ring, and when it has come how far: nanoseconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) call: Call,
    /// When the program called NCCL.
    pub(crate) entered: u64,
    /// When NCCL had launched the kernel, and so queued the call on its stream.
    pub(crate) launched: Option<u64>,
    /// When the kernel was first seen running.
    pub(crate) started: Option<u64>,
    /// When all channels that have started had ended.
    pub(crate) finished: Option<u64>,
    started_channels: u32,
    finished_channels: u32,
    /// The spans in which the program called NCCL, outermost first.
    pub(crate) spans: Vec<MemoryFrame>,
}

/// The last calls of a communicator.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    entries: VecDeque<Entry>,
    /// The id of the next entry. Ids go on when a slot gets another communicator, so that old handles find nothing.
    pub(crate) next: u64,
    /// The number of calls so far.
    pub(crate) calls: u64,
}

impl Ring {
    /// The number of calls that are kept. Ranks that hang are apart by a few calls; a group call of a large model has
    /// some dozens.
    pub(crate) const LENGTH: usize = 64;

    pub(crate) fn new(next: u64) -> Self {
        Self { entries: VecDeque::new(), next, calls: 0 }
    }

    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Adds a call that the program has made. Returns its id.
    pub(crate) fn enter(&mut self, call: Call, now: u64, spans: Vec<MemoryFrame>) -> u64 {
        if self.entries.len() >= Self::LENGTH {
            self.entries.pop_front();
        }
        let id = self.next;
        self.next += 1;
        self.calls += 1;
        self.entries.push_back(Entry { id, call, entered: now, spans, ..Entry::default() });
        id
    }

    /// Marks a call that the program has made as launched, which may say more about it. Returns false if it is not in
    /// the ring, or was launched before, as a CUDA graph is again and again.
    pub(crate) fn launch(&mut self, id: u64, call: &Call, now: u64) -> bool {
        let Some(entry) = self.entry(id).filter(|entry| entry.launched.is_none()) else { return false };
        entry.call = call.clone();
        entry.launched = Some(now);
        true
    }

    /// Marks a channel of a call's kernel as started.
    pub(crate) fn start(&mut self, id: u64, now: u64) {
        if let Some(entry) = self.entry(id) {
            entry.started.get_or_insert(now);
            entry.started_channels += 1;
            entry.finished = None;
        }
    }

    /// Marks a channel of a call's kernel as finished.
    pub(crate) fn finish(&mut self, id: u64, now: u64) {
        if let Some(entry) = self.entry(id) {
            entry.finished_channels = (entry.finished_channels + 1).min(entry.started_channels);
            if entry.finished_channels == entry.started_channels {
                entry.finished = entry.started.map(|_| now);
            }
        }
    }

    fn entry(&mut self, id: u64) -> Option<&mut Entry> {
        // Ids are consecutive.
        let first = self.entries.front()?.id;
        self.entries.get_mut(usize::try_from(id.checked_sub(first)?).ok()?)
    }
}

impl Call {
    /// Describes the call for a trace.
    pub(crate) fn collective(
        &self,
        communicator: u64,
        group: &Arc<str>,
        name: &str,
        size: u32,
        rank: u32,
    ) -> Collective {
        let mut collective = Collective::default();
        collective.operation = operation(&self.function);
        collective.group = Arc::clone(group);
        collective.description = name.to_owned();
        collective.group_size = size;
        (collective.elements_in, collective.elements_out) = elements(&self.function, self.count, size.into());
        collective.dtype = self.dtype.to_string();
        collective.sequence = self.sequence;
        collective.algorithm = Arc::clone(&self.algorithm);
        collective.protocol = Arc::clone(&self.protocol);
        collective.channels = self.channels;
        collective.communicator = Some(communicator);
        collective.group_rank = Some(rank);
        collective
    }
}

/// Returns PyTorch's name of one of NCCL's functions, which traces have.
fn operation(function: &str) -> String {
    match function {
        "ReduceScatter" => "reduce_scatter".to_owned(),
        _ => function.to_ascii_lowercase(),
    }
}

/// Returns the number of elements that a rank puts in and gets, from the number that NCCL reports: that of one rank's
/// part.
fn elements(function: &str, count: u64, ranks: u64) -> (u64, u64) {
    let all = count.saturating_mul(ranks);
    match function {
        "AllGather" | "Gather" => (count, all),
        "ReduceScatter" | "Scatter" => (all, count),
        "AlltoAll" | "AllToAll" => (all, all),
        "Send" => (count, 0),
        "Recv" => (0, count),
        _ => (count, count),
    }
}

/// The time, in nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
