//! The events of one thread, and its samples and waits.

use super::{
    records::{PerfRecord, RawNanos, Registers, records},
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
    pub(super) is_waiting: bool,
    pub(super) registers: Registers,
    pub(super) bytes: &'a [u8],
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
    const WAITS: usize = 7;

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
        let running = Event::open(thread, Reports::Running { hertz, stack_bytes }, 4 * between * record, 2 * record)?;
        let waiting = match waits {
            WaitEvents::None => None,
            WaitEvents::Stacks => {
                Some(Event::open(thread, Reports::Waiting { stack_bytes }, Self::WAITS * record, 2 * record)?)
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
        let mut lost = 0;
        buffer.clear();
        self.running.read(buffer);
        for record in records(buffer) {
            match record {
                PerfRecord::Sample { at, period, registers, stack } => {
                    sampled(Stack { at, nanos: period, is_waiting: false, registers, bytes: stack });
                }
                PerfRecord::Lost(records) => lost += records,
                PerfRecord::Switch { .. } => {}
            }
        }
        if let Some(waiting) = &self.waiting {
            buffer.clear();
            waiting.read(buffer);
            for record in records(buffer) {
                lost += lost_waits(self.waits.take(record, &mut sampled), self.records_per_wait);
            }
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
    registers: Registers,
    stack: Vec<u8>,
}

impl Waits {
    /// The shortest wait that is recorded. Shorter ones are mostly locks and preemption by interrupts, thousands a
    /// second, and are within the error of the samples.
    const LEAST_NANOS: u64 = 50_000;

    fn take(&mut self, record: PerfRecord<'_>, sampled: &mut impl FnMut(Stack<'_>)) -> u64 {
        match record {
            PerfRecord::Sample { registers, stack, .. } => {
                self.registers = registers;
                self.stack.clear();
                self.stack.extend_from_slice(stack);
            }
            PerfRecord::Switch { at, leaves: true } => {
                self.left = Some(at);
                self.since = None;
            }
            PerfRecord::Switch { at, leaves: false } => {
                // A thread whose first switch is a return has waited from the start.
                self.left = self.left.or(self.since.take());
                self.end(at, sampled);
                self.left = None;
                self.registers = Registers::default();
            }
            // A stack without its switches, or one that stays without a stack.
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
            sampled(Stack { at, nanos, is_waiting: true, registers: self.registers, bytes: &self.stack });
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
