//! Samples the call stacks of all threads while a window is open.
//!
//! On Linux, the kernel copies the registers and the stack of a thread into a ring. A thread of ours reads the copies
//! and unwinds them, so that the program's threads run no code of ours, not even a signal handler. Names and lines are
//! looked up after a window has closed, on the thread that exports it.

#[cfg(not(all(feature = "sampling", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod absent;
#[cfg(all(feature = "sampling", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod perf;

#[cfg(not(all(feature = "sampling", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) use self::absent::{SampledStacks, Sampler, Symbols};
#[cfg(all(feature = "sampling", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use self::perf::{SampledStacks, Sampler, Symbols};

use crate::{
    clock::Ticks,
    thread::ThreadInfo,
    trace::{StackNodeId, StackSampling, ThreadId},
};
use std::{ops::RangeInclusive, sync::mpsc::Receiver, time::Duration};

/// Settings for sampled call stacks: see [`ProfilerBuilder::samples`](crate::ProfilerBuilder::samples).
///
/// | setting | by default |
/// |---|---|
/// | [`hertz`](Self::hertz) | [`HERTZ`](Self::HERTZ), 99 samples a second |
/// | [`stack_bytes`](Self::stack_bytes) | [`STACK_BYTES`](Self::STACK_BYTES), 48 KiB |
/// | [`waits`](Self::waits) | yes |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "pass it to `ProfilerBuilder::samples`"]
pub struct Samples {
    hertz: u32,
    stack_bytes: u32,
    waits: bool,
}

impl Samples {
    /// The default of [`hertz`](Self::hertz): not a round number, so that work done a hundred times a second is not
    /// always or never seen.
    pub const HERTZ: u32 = 99;
    /// The most of [`hertz`](Self::hertz).
    pub const MAX_HERTZ: u32 = 10_000;
    /// The default of [`stack_bytes`](Self::stack_bytes). Of the stacks of an optimized training with Burn, 15 to 36 %
    /// were deeper than 16 KiB, and 0.1 to 0.5 % deeper than this. Only what there is of a stack is copied.
    pub const STACK_BYTES: u32 = 48 << 10;
    /// The most of [`stack_bytes`](Self::stack_bytes): a record of the kernel has at most 64 KiB.
    pub const MAX_STACK_BYTES: u32 = 63 << 10;

    /// Sets how often the stack of a thread is taken, per second that it runs. By default, [`Self::HERTZ`] times.
    pub fn hertz(mut self, hertz: u32) -> Self {
        self.hertz = hertz;
        self
    }

    /// Sets how many bytes of a stack are copied, from its innermost frame outwards. Outer frames beyond that are
    /// missing, and the sample is [truncated](crate::trace::StackSample::is_truncated). By default,
    /// [`Self::STACK_BYTES`].
    pub fn stack_bytes(mut self, bytes: u32) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Sets whether the times at which threads are not on a CPU are recorded, too, with the stack that each waits in
    /// where the system permits that. By default, they are.
    pub fn waits(mut self, waits: bool) -> Self {
        self.waits = waits;
        self
    }

    /// Returns the problem with the settings, if there is one.
    pub(crate) fn check(self) -> Result<(), String> {
        let check = |name, value: u32, allowed: RangeInclusive<u32>| match allowed.contains(&value) {
            true => Ok(()),
            false => Err(format!("`{name}` is {value}; it must be from {} to {}", allowed.start(), allowed.end())),
        };
        check("hertz", self.hertz, 1..=Self::MAX_HERTZ)?;
        check("stack_bytes", self.stack_bytes, 1 << 10..=Self::MAX_STACK_BYTES)
    }
}

impl Default for Samples {
    fn default() -> Self {
        Self { hertz: Self::HERTZ, stack_bytes: Self::STACK_BYTES, waits: true }
    }
}

/// The stacks that were sampled in a window that has closed. The sampling thread still reads the last of them for a
/// moment.
#[derive(Debug)]
#[cfg_attr(not(feature = "sampling"), allow(dead_code, reason = "nothing is pending if nothing samples"))]
pub(crate) enum WindowStacks {
    Pending(Receiver<SampledStacks>),
    Complete(Box<SampledStacks>),
    /// The sampling thread has ended before, or does not answer.
    Failed,
}

impl WindowStacks {
    /// How long to wait for the stacks. The thread unwinds a window's last samples in less than a second.
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Waits until all are there.
    pub(crate) fn complete(&mut self) {
        if let Self::Pending(stacks) = self {
            *self = stacks.recv_timeout(Self::TIMEOUT).map_or(Self::Failed, |stacks| Self::Complete(Box::new(stacks)));
        }
    }

    /// The bytes reserved for the stacks in the [`Budget`](crate::budget::Budget), if all are there.
    pub(crate) fn charged(&self) -> usize {
        if let Self::Complete(stacks) = self { stacks.charged } else { 0 }
    }

    /// Looks up names and lines.
    pub(crate) fn resolve(mut self, symbols: &mut Symbols) -> ResolvedStacks {
        self.complete();
        match self {
            Self::Complete(stacks) => symbols.resolve(*stacks),
            Self::Pending(_) | Self::Failed => {
                ResolvedStacks::without("the thread that samples stacks has panicked, or does not answer".to_owned())
            }
        }
    }
}

/// The sampled stacks of one window, with names and lines.
#[derive(Debug, Default)]
pub(crate) struct ResolvedStacks {
    /// Everything but the samples.
    pub(crate) sampling: StackSampling,
    /// In chronological order.
    pub(crate) samples: Vec<ResolvedSample>,
    /// The threads that were sampled.
    pub(crate) threads: Vec<ThreadInfo>,
}

impl ResolvedStacks {
    /// Returns what is left if nothing could be sampled.
    pub(crate) fn without(problem: String) -> Self {
        let sampling = StackSampling { problem: Some(problem), ..StackSampling::default() };
        Self { sampling, ..Self::default() }
    }
}

/// A stack, before its span is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedSample {
    pub(crate) at: Ticks,
    /// The time that it stands for.
    pub(crate) nanos: u64,
    pub(crate) thread: ThreadId,
    pub(crate) stack: Option<StackNodeId>,
    pub(crate) waiting: bool,
    pub(crate) truncated: bool,
}
