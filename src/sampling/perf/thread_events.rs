//! The events of one thread, and its samples and waits.

use super::{
    records::{PerfRecord, RawNanos, Registers},
    sys::{Event, Reports},
};
use crate::sampling::Samples;
use std::{fs, io};

/// The events of one thread.
#[derive(Debug)]
pub(super) struct ThreadEvents {
    pub(super) thread: u32,
    pub(super) name: String,
    /// Whether the name was read again, as a new thread has that of its creator for a moment.
    is_named: bool,
    running: Event,
    waiting: Option<Event>,
    /// The records of a wait: its stack, and when the thread left and returned.
    records_per_wait: u64,
    waits: Waits,
}

/// A stack of a thread.
pub(super) struct Stack<'a> {
    pub(super) at: RawNanos,
    /// The time on the CPU that it stands for, or the duration of a wait.
    pub(super) nanos: u64,
    pub(super) thread_is: ThreadIs,
    pub(super) registers: Registers,
    pub(super) bytes: &'a [u8],
}

/// The state of a thread when its stack was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ThreadIs {
    Running,
    #[default]
    Waiting,
    /// Able to run, while others do.
    Preempted,
}

/// How waits are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEvents {
    None,
    /// With the stack of each.
    Stacks,
    /// Without, as the system does not permit the event that has it.
    TimesOnly,
}

impl ThreadEvents {
    /// The room for a record, without its stack.
    const RECORD_BYTES: usize = 256;
    /// The number of stacks of waits that a ring has room for, between two readings. Further waits have no stack, so a
    /// thread that waits all the time takes no more of the kernel's time than that.
    const WAITS: usize = 2;

    /// Opens the events of a thread. `between` is the number of samples between two readings of the ring.
    pub(super) fn open(
        thread: u32,
        name: String,
        settings: Samples,
        between: usize,
        waits: WaitEvents,
    ) -> io::Result<Self> {
        let Samples { hertz, stack_bytes, .. } = settings;
        // The kernel wants a multiple of eight bytes.
        let stack_bytes = stack_bytes.next_multiple_of(8);
        let record = stack_bytes as usize + Self::RECORD_BYTES;
        // Room for four readings, as the thread that reads may have to wait for a CPU.
        let running = Event::open(thread, Reports::Running { hertz, stack_bytes }, 4 * between * record, record)?;
        let waiting = match waits {
            WaitEvents::None => None,
            WaitEvents::Stacks => {
                Some(Event::open(thread, Reports::Waiting { stack_bytes }, Self::WAITS * record, record)?)
            }
            WaitEvents::TimesOnly => Some(Event::open(thread, Reports::Switches, 1 << 16, 1 << 12)?),
        };
        let records_per_wait = if waits == WaitEvents::Stacks { 3 } else { 2 };
        Ok(Self { thread, name, is_named: false, running, waiting, records_per_wait, waits: Waits::default() })
    }

    pub(super) fn enable(&mut self, now: RawNanos) {
        self.running.enable();
        self.waiting.iter().for_each(Event::enable);
        self.waits = Waits { since: Some(now), ..Waits::default() };
    }

    pub(super) fn disable(&self) {
        self.running.disable();
        self.waiting.iter().for_each(Event::disable);
    }

    /// Reads the name of a new thread once more.
    pub(super) fn name_again(&mut self) {
        if !self.is_named {
            self.is_named = true;
            self.name = name_of(self.thread).unwrap_or_else(|| std::mem::take(&mut self.name));
        }
    }

    /// Passes on what the rings have. Returns the number of samples and waits that did not fit into them.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>, mut sampled: impl FnMut(Stack<'_>)) -> u64 {
        let Self { running, waiting, waits, records_per_wait, .. } = self;
        let mut lost = 0;
        running.read(buffer, |bytes| match PerfRecord::decode(bytes) {
            Some(PerfRecord::Sample { at, period, registers, stack }) => {
                sampled(Stack { at, nanos: period, thread_is: ThreadIs::Running, registers, bytes: stack });
            }
            Some(PerfRecord::Lost(records)) => lost += records,
            Some(PerfRecord::Left { .. } | PerfRecord::Returned { .. }) | None => {}
        });
        if let Some(waiting) = waiting {
            waiting.read(buffer, |bytes| {
                let dropped = PerfRecord::decode(bytes).map_or(0, |record| waits.take(record, &mut sampled));
                lost += lost_waits(dropped, *records_per_wait);
            });
        }
        lost
    }

    /// Passes on the wait that the thread is in as a window closes. What is left of it belongs to the next.
    pub(super) fn cut_wait(&mut self, close: RawNanos, mut sampled: impl FnMut(Stack<'_>)) {
        self.waits.end(close, &mut sampled);
        self.waits.left = self.waits.left.map(|left| left.max(close));
    }
}

/// Returns the number of waits that are lost with so many consecutive records.
///
/// A stack takes most of the room, so that it is mostly a single stack that does not fit; the wait is then kept without
/// it.
fn lost_waits(records: u64, records_per_wait: u64) -> u64 {
    (records + 1) / records_per_wait
}

/// Returns the name of a thread, or none if it has ended.
pub(super) fn name_of(thread: u32) -> Option<String> {
    let name = fs::read(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}

/// Whether a thread of this name is one of the profiler's.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with("kernspan-")
}

/// The last moment at which a thread left the CPU.
#[derive(Debug, Default)]
struct Waits {
    left: Option<RawNanos>,
    /// When the events were enabled, until the first switch.
    since: Option<RawNanos>,
    thread_is: ThreadIs,
    registers: Registers,
    stack: Vec<u8>,
}

impl Waits {
    /// The shortest wait that is recorded. Shorter ones are mostly locks and preemption by interrupts, thousands a
    /// second, and are within the error of the samples.
    const LEAST_NANOS: u64 = 50_000;

    /// Returns the number of records that did not fit into the ring before this one.
    fn take(&mut self, record: PerfRecord<'_>, sampled: &mut impl FnMut(Stack<'_>)) -> u64 {
        match record {
            PerfRecord::Sample { registers, stack, .. } => {
                self.registers = registers;
                self.stack.clear();
                self.stack.extend_from_slice(stack);
            }
            PerfRecord::Left { at, is_preempted } => {
                self.left = Some(at);
                self.thread_is = if is_preempted { ThreadIs::Preempted } else { ThreadIs::Waiting };
                self.since = None;
            }
            PerfRecord::Returned { at } => {
                // A thread whose first switch is a return has waited from the start.
                self.left = self.left.or(self.since.take());
                self.end(at, sampled);
                self.left = None;
                self.registers = Registers::default();
            }
            // What stack there is may be of another wait.
            PerfRecord::Lost(records) => {
                self.registers = Registers::default();
                return records;
            }
        }
        0
    }

    /// Passes on the wait that ends now, or is cut.
    fn end(&self, end: RawNanos, sampled: &mut impl FnMut(Stack<'_>)) {
        let Some(at) = self.left else { return };
        let nanos = end.0.saturating_sub(at.0);
        if nanos >= Self::LEAST_NANOS {
            sampled(Stack { at, nanos, thread_is: self.thread_is, registers: self.registers, bytes: &self.stack });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::lost_waits;

    #[test]
    fn a_wait_that_only_has_no_stack_is_not_lost() {
        // Stack, leave, return: from one record to two whole waits, and the stack of a third.
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|records| lost_waits(records, 3)), [0, 0, 1, 1, 1, 2, 2, 2]);
        // Leave, return.
        assert_eq!([0, 1, 2, 3, 4].map(|records| lost_waits(records, 2)), [0, 1, 1, 2, 2]);
    }
}
