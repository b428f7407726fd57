//! The records of one lane, on their way into a window: which are kept, and what they cost.

use crate::{
    budget::Budget,
    host::LaneReader,
    recording::{Record, RegistryId, ThreadRecords},
    trace::Losses,
};

/// The records of one lane, on their way into a window.
pub(super) struct Intake {
    pub(super) lane: LaneReader,
    /// The window the thread writes for.
    pub(super) window: Option<u32>,
    /// Spans that were open in windows that the thread is joining. They are used once the thread has written all of
    /// them: until then the thread has not resumed, and its stack says the same.
    joining: Vec<(u32, Vec<Record>)>,
    chunks: Vec<Vec<Record>>,
    /// The memory cost of the window's records in bytes.
    cost: usize,
    /// The part of the cost that has been reserved.
    reserved: usize,
    /// The number of open spans, including dropped ones.
    depth: usize,
    /// Spans that were dropped for lack of memory and have not been exited.
    skipped: Vec<RegistryId>,
    /// Whether the last record other than a field was dropped, so that its fields are dropped, too.
    skipping: bool,
    /// Whether the last record came too late and has been counted together with the fields that follow.
    late_owner: bool,
}

impl Intake {
    /// The number of records in a thread's first chunk of a window, and the most in a later one. Each chunk has room
    /// for as many as all before it, so that a thread with few records takes little memory, and none are ever moved.
    const CHUNK: (usize, usize) = (16, 1024);
    /// The cost that is reserved at a time, so that the collector and the other threads seldom contend for the counter.
    const RESERVED_AT_ONCE: usize = 4096;

    pub(super) fn new(lane: LaneReader) -> Self {
        Self {
            lane,
            window: None,
            joining: Vec::new(),
            chunks: Vec::new(),
            cost: 0,
            reserved: 0,
            depth: 0,
            skipped: Vec::new(),
            skipping: false,
            late_owner: false,
        }
    }

    /// Reads everything available. `next` is the first window that has not been passed on.
    pub(super) fn drain(
        &mut self,
        next: u32,
        budget: &Budget,
        gathered: &mut Vec<(u32, ThreadRecords)>,
        losses: &mut Losses,
    ) {
        while let Some(record) = self.lane.read() {
            match record {
                Record::Join { window } => self.joining.push((window, Vec::new())),
                Record::Joined => {
                    for (window, open) in std::mem::take(&mut self.joining) {
                        gathered.extend(self.take(budget));
                        self.window = Some(window);
                        self.depth = 0;
                        self.skipped.clear();
                        // Spans that were open throughout a window that has been passed on are already in it.
                        let is_collected = window < next;
                        open.into_iter().filter(|_| !is_collected).for_each(|record| self.add(record, budget, losses));
                    }
                }
                _ => match self.joining.last_mut() {
                    Some((_, open)) => open.push(record),
                    None if self.window.is_some_and(|window| window >= next) => self.add(record, budget, losses),
                    None => self.count_late(&record, losses),
                },
            }
        }
        self.reserve(budget);
    }

    /// Counts a record for a window that has been passed on as lost: a span, an event, or the fields of one that was
    /// kept.
    fn count_late(&mut self, record: &Record, losses: &mut Losses) {
        let fields = match record {
            Record::Field(_) => 1,
            Record::Fields(fields) => fields.len() as u64,
            _ => 0,
        };
        losses.fields += if self.late_owner { 0 } else { fields };
        let is_owner = matches!(
            record,
            Record::Enter { .. }
                | Record::EnterKept { .. }
                | Record::Event { .. }
                | Record::Update { .. }
                | Record::Follows { .. }
                | Record::Call(_)
                | Record::Memory(_)
                | Record::Operation { .. }
                | Record::Collective { .. }
        );
        losses.late += u64::from(is_owner);
        // The fields that follow are counted with this one.
        self.late_owner = is_owner || fields > 0;
    }

    fn add(&mut self, record: Record, budget: &Budget, losses: &mut Losses) {
        self.late_owner = false;
        if self.keeps(&record, budget, losses) {
            self.push(record, budget);
        }
    }

    /// Takes the records that were read for the thread's window.
    pub(super) fn take(&mut self, budget: &Budget) -> Option<(u32, ThreadRecords)> {
        let window = self.window.filter(|_| !self.chunks.is_empty())?;
        self.reserve(budget);
        let (chunks, charged) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.reserved));
        self.cost = 0;
        Some((window, ThreadRecords { thread: self.lane.thread().clone(), chunks, charged }))
    }

    fn push(&mut self, record: Record, budget: &Budget) {
        self.cost += record.cost();
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < chunk.capacity() => chunk.push(record),
            last => {
                let (first, most) = Self::CHUNK;
                let records = last.map_or(first, |last| (2 * last.capacity()).min(most));
                self.cost += records * Record::SIZE;
                self.cost += if self.chunks.is_empty() { ThreadRecords::cost(&self.lane.thread().name) } else { 0 };
                let mut chunk = Vec::with_capacity(records);
                chunk.push(record);
                self.chunks.push(chunk);
            }
        }
        if self.cost - self.reserved >= Self::RESERVED_AT_ONCE {
            self.reserve(budget);
        }
    }

    /// Reserves the cost that has not been reserved yet.
    fn reserve(&mut self, budget: &Budget) {
        if self.cost > self.reserved {
            budget.take(self.cost - self.reserved);
            self.reserved = self.cost;
        }
    }

    /// Whether the record is kept: there is memory for it, or it belongs to a record that was kept. A span is dropped
    /// as a whole.
    fn keeps(&mut self, record: &Record, budget: &Budget, losses: &mut Losses) -> bool {
        match *record {
            Record::Field(_)
            | Record::Fields(_)
            | Record::Context { .. }
            | Record::Unsampled { .. }
            | Record::Parent { .. }
            | Record::CpuStart { .. }
            | Record::Backtrace(_) => return !self.skipping,
            Record::CpuEnd { id, .. } => return !self.skipped.contains(&id),
            Record::ContextOf { id } => self.skipping = self.skipped.contains(&id),
            // Without it, calls would be attributed to the wrong spans.
            Record::Adopt(_) => return true,
            Record::Exit { id, .. } => {
                self.depth = self.depth.saturating_sub(1);
                let index = self.skipped.iter().rposition(|skipped| *skipped == id);
                self.skipping = index.map(|index| self.skipped.remove(index)).is_some();
            }
            Record::Enter { id, .. } | Record::EnterKept { id, .. } | Record::Open { id, .. } => {
                self.skipping = budget.is_spent_at(self.depth);
                self.depth += 1;
                if self.skipping {
                    losses.over_memory += 1;
                    self.skipped.push(id);
                }
            }
            _ => {
                self.skipping = budget.is_spent_at(usize::MAX);
                losses.over_memory += u64::from(self.skipping);
            }
        }
        !self.skipping
    }
}
