//! The parts of a step, by what the GPU did, and what the host did while the GPU was idle.

use std::{iter::Sum, ops::AddAssign, time::Duration};

/// The time of a step or of many, each moment counted once.
///
/// While the GPU is busy, a moment is [`compute`](Self::compute) if a kernel runs that is no communication; else
/// [`exposed_communication`](Self::exposed_communication) if one of NCCL's kernels runs; else
/// [`exposed_copies`](Self::exposed_copies).
///
/// While the GPU is idle, it is [`between_kernels`](Self::between_kernels) if the host's call for the next work had
/// returned before the GPU became idle. Otherwise it is what the host does then: [`input`](Self::input), else
/// [`synchronizing`](Self::synchronizing), else [`launching`](Self::launching), else [`host`](Self::host), else
/// [`other`](Self::other). Two kinds of threads count: the thread of the step, and those that launch kernels for it,
/// such as PyTorch's autograd thread or Burn's device thread. The thread of the step waits for one of these if it
/// neither enters nor leaves a span or a call while the other launches work, as in `loss.backward()`. Functions that
/// were not recorded are not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StepParts {
    /// The time in which kernels computed.
    pub compute: Duration,
    /// The time in which kernels communicated with other GPUs, and none computed.
    pub exposed_communication: Duration,
    /// The time in which memory was copied or set, and no kernel ran.
    pub exposed_copies: Duration,
    /// The idle time before work that the host had asked for in time: the GPU takes a microsecond to begin a kernel,
    /// and streams wait for each other. Launch fewer, longer kernels.
    pub between_kernels: Duration,
    /// The idle time in which the step's thread was in a span of the input pipeline:
    /// [`Span::input_stage`](crate::trace::Span::input_stage). Load data in advance, or with more threads.
    pub input: Duration,
    /// The idle time in which the step's thread, or one that it waited for, was in a call that waits for the GPU: one
    /// that synchronizes with a stream, an event or a context, or copies from the GPU, unless that is asynchronous and
    /// into pinned memory. Wait less often.
    pub synchronizing: Duration,
    /// The idle time in which the step's thread, or one that works for it, was in a call that launches kernels or
    /// graphs, or copies or sets memory. Launch less often: larger batches, fused kernels, CUDA graphs.
    pub launching: Duration,
    /// The idle time in which the step's thread, or one that it waited for, was in any other span.
    pub host: Duration,
    /// The idle time in which no span was open on these threads.
    pub other: Duration,
}

/// A part of a step: a field of [`StepParts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepPart {
    /// [`StepParts::compute`].
    Compute,
    /// [`StepParts::exposed_communication`].
    Communication,
    /// [`StepParts::exposed_copies`].
    Copies,
    /// [`StepParts::between_kernels`].
    BetweenKernels,
    /// [`StepParts::input`].
    Input,
    /// [`StepParts::synchronizing`].
    Synchronizing,
    /// [`StepParts::launching`].
    Launching,
    /// [`StepParts::host`].
    Host,
    /// [`StepParts::other`].
    Other,
}

impl StepPart {
    /// All parts, in the order in which they are listed.
    pub const ALL: [Self; 9] = [
        Self::Compute,
        Self::Communication,
        Self::Copies,
        Self::BetweenKernels,
        Self::Input,
        Self::Synchronizing,
        Self::Launching,
        Self::Host,
        Self::Other,
    ];

    /// Returns the name of the part: `compute`, `between kernels`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Copies => "copies",
            Self::BetweenKernels => "between kernels",
            Self::Input => "input",
            Self::Synchronizing => "synchronizing",
            Self::Launching => "launching",
            Self::Host => "host",
            Self::Other => "other",
        }
    }

    /// Returns a sentence that says what the part is, for a step on a GPU.
    #[must_use]
    pub fn help(self) -> &'static str {
        match self {
            Self::Compute => "The GPU computes.",
            Self::Communication => "The GPU exchanges data with other GPUs, and computes nothing meanwhile.",
            Self::Copies => "The GPU copies or fills memory, and no kernel runs meanwhile.",
            Self::BetweenKernels => "The GPU is idle, though the host has already launched the next work.",
            Self::Input => "The GPU is idle, and the host loads data.",
            Self::Synchronizing => "The GPU is idle, and the host is in a call that waits for it.",
            Self::Launching => "The GPU is idle, and the host is in a call that launches work.",
            Self::Host => "The GPU is idle, and the host is in a span, but in none of these calls.",
            Self::Other => "The GPU is idle, and the host is in no span.",
        }
    }
}

impl StepParts {
    /// Returns the time of a part.
    ///
    /// ```
    /// use kernspan::analysis::{StepPart, StepParts};
    ///
    /// let parts = StepParts::default();
    /// assert!(StepPart::ALL.iter().all(|part| parts.of(*part).is_zero()));
    /// ```
    #[must_use]
    pub fn of(&self, part: StepPart) -> Duration {
        match part {
            StepPart::Compute => self.compute,
            StepPart::Communication => self.exposed_communication,
            StepPart::Copies => self.exposed_copies,
            StepPart::BetweenKernels => self.between_kernels,
            StepPart::Input => self.input,
            StepPart::Synchronizing => self.synchronizing,
            StepPart::Launching => self.launching,
            StepPart::Host => self.host,
            StepPart::Other => self.other,
        }
    }

    /// Returns each part that took any time, in the order of [`StepPart::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (StepPart, Duration)> {
        StepPart::ALL.into_iter().map(|part| (part, self.of(part))).filter(|(_, time)| !time.is_zero())
    }

    /// Returns the time of all parts: that of the step.
    #[must_use]
    pub fn total(&self) -> Duration {
        StepPart::ALL.iter().map(|part| self.of(*part)).sum()
    }

    /// Returns the time in which the GPU did anything.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.compute + self.exposed_communication + self.exposed_copies
    }

    /// Returns the time in which the GPU was idle because it waited for the host.
    #[must_use]
    pub fn waiting(&self) -> Duration {
        self.input + self.synchronizing + self.launching + self.host + self.other
    }

    /// Returns the time in which the GPU was idle.
    #[must_use]
    pub fn idle(&self) -> Duration {
        self.between_kernels + self.waiting()
    }

    fn fields(&mut self) -> [&mut Duration; StepPart::ALL.len()] {
        let Self { compute, exposed_communication, exposed_copies, between_kernels, .. } = self;
        let Self { input, synchronizing, launching, host, other, .. } = self;
        [compute, exposed_communication, exposed_copies, between_kernels, input, synchronizing, launching, host, other]
    }

    /// Returns the parts of one of so many steps.
    #[must_use]
    pub fn each(mut self, steps: u64) -> Self {
        let steps = u32::try_from(steps.max(1)).unwrap_or(u32::MAX);
        self.fields().into_iter().for_each(|time| *time /= steps);
        self
    }
}

impl AddAssign for StepParts {
    fn add_assign(&mut self, mut other: Self) {
        for (sum, time) in self.fields().into_iter().zip(other.fields()) {
            *sum = sum.saturating_add(*time);
        }
    }
}

impl Sum for StepParts {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |mut sum, parts| {
            sum += parts;
            sum
        })
    }
}
