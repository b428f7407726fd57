//! When to record: PyTorch's schedule, a range of steps, or any function of the step's number.

use std::{
    fmt,
    ops::{Bound, RangeBounds},
};

/// What the profiler does during a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing: PyTorch's `NONE`.
    Wait,
    /// Gets ready and records nothing: PyTorch's `WARMUP`.
    Warmup,
    /// Records: PyTorch's `RECORD`.
    Record,
    /// Records, and closes the window when the step ends: PyTorch's `RECORD_AND_SAVE`.
    RecordAndSave,
}

impl Phase {
    /// Whether the step is recorded.
    pub fn is_recording(self) -> bool {
        matches!(self, Self::Record | Self::RecordAndSave)
    }
}

/// Says for each step what to do in it.
///
/// # PyTorch's schedule
///
/// The steps of a run are split like this, each number in steps:
///
/// ```text
/// skip_first │ wait │ warmup │ active │ wait │ warmup │ active │ …     repeat times, 0 for ever
/// ```
///
/// Every `active` stretch is one window and gives one [`Trace`](crate::Trace).
///
/// ```
/// use kernspan::{Phase, Schedule};
///
/// let mut schedule = Schedule::new().wait(1).warmup(1).active(2).repeat(1);
/// let phases: Vec<_> = (0..5).map(|step| schedule.phase(step)).collect();
/// assert_eq!(phases, [Phase::Wait, Phase::Warmup, Phase::Record, Phase::RecordAndSave, Phase::Wait]);
/// ```
///
/// # What else can be said
///
/// [`Schedule::steps`] records a range, [`Schedule::from_fn`] asks a function, [`Schedule::manual`] leaves it to
/// [`start`](crate::Profiler::start) and [`stop`](crate::Profiler::stop). A profiler built with no schedule records from the
/// start to the end.
///
/// # Where a window ends
///
/// After a step of [`Phase::RecordAndSave`], or when a recorded step is followed by one that is not, or at the end of the
/// run. In the second case PyTorch discards the window with a warning; kernspan saves it, so that a function need not know
/// beforehand which step is the last.
pub struct Schedule(Kind);

enum Kind {
    Always,
    Manual,
    Cycle(Cycle),
    Range {
        first: u64,
        last: u64,
    },
    Function(Box<dyn FnMut(u64) -> Phase + Send>),
    /// A number of [`Cycle`] was set on something else.
    Misused,
}

#[derive(Clone, Copy, Debug)]
struct Cycle {
    skip_first: u64,
    skip_first_wait: bool,
    wait: u64,
    warmup: u64,
    active: u64,
    repeat: u64,
}

impl Schedule {
    /// PyTorch's schedule, to be filled in: by default one `active` step after another, for ever.
    pub fn new() -> Self {
        Self(Kind::Cycle(Cycle { skip_first: 0, skip_first_wait: false, wait: 0, warmup: 0, active: 1, repeat: 0 }))
    }

    /// Records the steps of a range as one window, as TensorFlow's `profile_batch` does.
    ///
    /// ```
    /// # use kernspan::{Phase, Schedule};
    /// let mut schedule = Schedule::steps(10..=20);
    /// assert_eq!(schedule.phase(9), Phase::Wait);
    /// assert_eq!(schedule.phase(10), Phase::Record);
    /// assert_eq!(schedule.phase(20), Phase::RecordAndSave);
    /// ```
    pub fn steps(range: impl RangeBounds<u64>) -> Self {
        let first = match range.start_bound() {
            Bound::Included(&first) => Some(first),
            Bound::Excluded(&before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let last = match range.end_bound() {
            Bound::Included(&last) => Some(last),
            Bound::Excluded(&after) => after.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        // A range that cannot be written as first..=last is empty, and so is 1..=0: `check` refuses it.
        let (first, last) = first.zip(last).unwrap_or((1, 0));
        Self(Kind::Range { first, last })
    }

    /// Asks a function at every step. It is called once a step, on the thread that steps, and must not call the profiler.
    /// If it panics, the profiler waits from then on and says so at the end.
    pub fn from_fn(function: impl FnMut(u64) -> Phase + Send + 'static) -> Self {
        Self(Kind::Function(Box::new(function)))
    }

    /// Records nothing until [`start`](crate::Profiler::start).
    pub fn manual() -> Self {
        Self(Kind::Manual)
    }

    /// Records from the start to the end.
    pub fn always() -> Self {
        Self(Kind::Always)
    }

    fn cycle(mut self, set: impl FnOnce(&mut Cycle)) -> Self {
        match &mut self.0 {
            Kind::Cycle(cycle) => set(cycle),
            kind => *kind = Kind::Misused,
        }
        self
    }

    /// Steps at the very beginning that are left out. By default, 0.
    ///
    /// This and the other numbers belong to the schedule of [`Schedule::new`]; on another they are an error.
    #[must_use]
    pub fn skip_first(self, steps: u64) -> Self {
        self.cycle(|cycle| cycle.skip_first = steps)
    }

    /// Whether the first cycle goes without its wait. By default, it does not.
    #[must_use]
    pub fn skip_first_wait(self, skip: bool) -> Self {
        self.cycle(|cycle| cycle.skip_first_wait = skip)
    }

    /// Steps at the start of each cycle in which nothing happens. By default, 0.
    #[must_use]
    pub fn wait(self, steps: u64) -> Self {
        self.cycle(|cycle| cycle.wait = steps)
    }

    /// Steps after the wait in which the profiler gets ready. By default, 0.
    #[must_use]
    pub fn warmup(self, steps: u64) -> Self {
        self.cycle(|cycle| cycle.warmup = steps)
    }

    /// Steps after the warm-up that are recorded. By default, 1; not 0.
    #[must_use]
    pub fn active(self, steps: u64) -> Self {
        self.cycle(|cycle| cycle.active = steps)
    }

    /// How many cycles there are. By default, 0: no end.
    #[must_use]
    pub fn repeat(self, cycles: u64) -> Self {
        self.cycle(|cycle| cycle.repeat = cycles)
    }

    /// What to do in the step with this number, counted from 0.
    pub fn phase(&mut self, step: u64) -> Phase {
        match &mut self.0 {
            Kind::Always => Phase::Record,
            Kind::Manual | Kind::Misused => Phase::Wait,
            Kind::Cycle(cycle) => cycle.phase(step),
            Kind::Range { first, last } if (*first..*last).contains(&step) => Phase::Record,
            Kind::Range { last, .. } if *last == step => Phase::RecordAndSave,
            Kind::Range { .. } => Phase::Wait,
            Kind::Function(function) => function(step),
        }
    }

    /// How many steps from this one on, which is not recorded, nothing happens in.
    pub(crate) fn wait_from(&self, step: u64) -> WaitLength {
        match &self.0 {
            Kind::Cycle(cycle) => cycle.wait_from(step),
            Kind::Range { first, .. } => first.checked_sub(step).map_or(WaitLength::Forever, WaitLength::Steps),
            Kind::Always | Kind::Manual | Kind::Misused | Kind::Function(_) => WaitLength::Unknown,
        }
    }

    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<(), ScheduleError> {
        match &self.0 {
            Kind::Cycle(cycle) => cycle.check(),
            Kind::Misused => Err(ScheduleError::NotACycle),
            Kind::Range { first, last } if first > last => Err(ScheduleError::EmptyRange),
            _ => Ok(()),
        }
    }

    /// Whether the run is in steps even if none is ever taken.
    pub(crate) fn counts_steps(&self) -> bool {
        !matches!(self.0, Kind::Always | Kind::Manual)
    }
}

impl Cycle {
    fn length(&self) -> Option<u64> {
        self.wait.checked_add(self.warmup)?.checked_add(self.active)
    }

    fn check(&self) -> Result<(), ScheduleError> {
        if self.active == 0 {
            return Err(ScheduleError::NothingActive);
        }
        self.length()
            .and_then(|length| length.checked_mul(self.repeat.max(1)))
            .and_then(|steps| steps.checked_add(self.skip_first))
            .map(|_| ())
            .ok_or(ScheduleError::Overflow)
    }

    fn phase(&self, step: u64) -> Phase {
        let (Some(length), Some(step)) = (self.length(), step.checked_sub(self.skip_first)) else {
            return Phase::Wait;
        };
        let step = if self.skip_first_wait { step.saturating_add(self.wait) } else { step };
        if self.repeat > 0 && step / length >= self.repeat {
            return Phase::Wait;
        }
        match step % length {
            place if place < self.wait => Phase::Wait,
            place if place < self.wait + self.warmup => Phase::Warmup,
            place if place + 1 < length => Phase::Record,
            _ => Phase::RecordAndSave,
        }
    }
}

impl Cycle {
    fn wait_from(&self, step: u64) -> WaitLength {
        let until_first = self.skip_first.saturating_sub(step);
        let first = step.max(self.skip_first);
        let Some(length) = self.length() else { return WaitLength::Forever };
        let counted = (first - self.skip_first).saturating_add(if self.skip_first_wait { self.wait } else { 0 });
        if self.repeat > 0 && counted / length >= self.repeat {
            return WaitLength::Forever;
        }
        WaitLength::Steps(until_first.saturating_add(self.wait.saturating_sub(counted % length)))
    }
}

/// How long nothing is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLength {
    Steps(u64),
    Forever,
    /// A function or the program decides.
    Unknown,
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Always => f.write_str("Always"),
            Kind::Manual => f.write_str("Manual"),
            Kind::Cycle(cycle) => cycle.fmt(f),
            Kind::Range { first, last } => write!(f, "Steps({first}..={last})"),
            Kind::Function(_) => f.write_str("Function"),
            Kind::Misused => f.write_str("Misused"),
        }
    }
}

/// Why a [`Schedule`] makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// `active` is 0.
    NothingActive,
    /// A range of steps is empty.
    EmptyRange,
    /// The numbers do not fit.
    Overflow,
    /// One of the numbers of [`Schedule::new`] was set on a schedule of another kind.
    NotACycle,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingActive => "active is 0, so no step would ever be recorded; use active(1) or more",
            Self::EmptyRange => "the range of steps is empty, so no step would ever be recorded",
            Self::NotACycle => {
                "skip_first, wait, warmup, active and repeat belong to Schedule::new(), not to another schedule"
            }
            Self::Overflow => "skip_first + (wait + warmup + active) * repeat is more steps than can be counted",
        })
    }
}

impl std::error::Error for ScheduleError {}
