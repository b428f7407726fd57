//! Schedules, which decide when to record: PyTorch's schedule, a range of steps, or any function of the step number.

mod text;

use std::{
    fmt,
    ops::{Bound, RangeBounds},
};

/// A phase of the schedule: what the profiler does during a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The profiler does nothing: PyTorch's `NONE`.
    Wait,
    /// The profiler prepares to record: PyTorch's `WARMUP`.
    Warmup,
    /// The profiler records: PyTorch's `RECORD`.
    Record,
    /// The profiler records, and closes the window when the step ends: PyTorch's `RECORD_AND_SAVE`.
    RecordAndSave,
}

impl Phase {
    /// Returns whether the step is recorded.
    pub fn is_recording(self) -> bool {
        matches!(self, Self::Record | Self::RecordAndSave)
    }
}

/// A schedule decides for each step of a run whether it is recorded.
///
/// # PyTorch's schedule
///
/// [`Schedule::new`] divides the steps of a run like this, each number in steps:
///
/// ```text
/// skip_first │ wait │ warmup │ active │ wait │ warmup │ active │ …     repeat times, without end if 0
/// ```
///
/// Every `active` stretch is one window and produces one [`Trace`](crate::Trace).
///
/// ```
/// use kernspan::{Phase, Schedule};
///
/// let mut schedule = Schedule::new().wait(1).warmup(1).active(2).repeat(1);
/// let phases: Vec<_> = (0..5).map(|step| schedule.phase(step)).collect();
/// assert_eq!(phases, [Phase::Wait, Phase::Warmup, Phase::Record, Phase::RecordAndSave, Phase::Wait]);
/// ```
///
/// # Other schedules
///
/// [`Schedule::steps`] records a range of steps, [`Schedule::from_fn`] asks a function, and [`Schedule::manual`] leaves
/// it to [`start`](crate::Profiler::start) and [`stop`](crate::Profiler::stop). A profiler built without a schedule
/// records from start to end.
///
/// # Where a window ends
///
/// A window ends after a step of [`Phase::RecordAndSave`], before a step that is not recorded, or at the end of the
/// run. In the second case PyTorch discards the window with a warning. kernspan saves it, so a function need not know
/// in advance which step is the last.
#[must_use = "a schedule does nothing until it is given to `ProfilerBuilder::schedule`"]
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
    /// A number of [`Cycle`] was set on a different kind of schedule.
    Misused,
}

/// The numbers of PyTorch's schedule.
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
    /// Returns PyTorch's schedule, whose numbers can be set. By default, every step is `active`, and each is its own
    /// window.
    pub fn new() -> Self {
        Self(Kind::Cycle(Cycle { skip_first: 0, skip_first_wait: false, wait: 0, warmup: 0, active: 1, repeat: 0 }))
    }

    /// Returns a schedule that records a range of steps as one window, as TensorFlow's `profile_batch` does.
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
        // A range that cannot be written as first..=last is empty. It becomes 1..=0, which is also empty and which
        // `check` rejects.
        let (first, last) = first.zip(last).unwrap_or((1, 0));
        Self(Kind::Range { first, last })
    }

    /// Returns a schedule that asks a function for the phase of each step.
    ///
    /// The function is called once per step, on the thread that steps, and must not call the profiler. If it panics,
    /// the profiler waits from then on and reports the panic at the end.
    pub fn from_fn(function: impl FnMut(u64) -> Phase + Send + 'static) -> Self {
        Self(Kind::Function(Box::new(function)))
    }

    /// Returns a schedule that records nothing until [`start`](crate::Profiler::start).
    pub fn manual() -> Self {
        Self(Kind::Manual)
    }

    /// Returns a schedule that records from start to end.
    pub fn always() -> Self {
        Self(Kind::Always)
    }

    /// Sets a number of PyTorch's schedule.
    fn cycle(mut self, set: impl FnOnce(&mut Cycle)) -> Self {
        match &mut self.0 {
            Kind::Cycle(cycle) => set(cycle),
            kind => *kind = Kind::Misused,
        }
        self
    }

    /// Sets the number of steps to skip at the beginning of the run. By default, 0.
    ///
    /// This and the other numbers belong to [`Schedule::new`]. Setting one on any other schedule is an error, which
    /// [`build`](crate::ProfilerBuilder::build) returns.
    pub fn skip_first(self, steps: u64) -> Self {
        self.cycle(|cycle| cycle.skip_first = steps)
    }

    /// Sets whether the first cycle skips its wait. By default, it does not.
    pub fn skip_first_wait(self, skip: bool) -> Self {
        self.cycle(|cycle| cycle.skip_first_wait = skip)
    }

    /// Sets the number of steps at the start of each cycle in which nothing happens. By default, 0.
    pub fn wait(self, steps: u64) -> Self {
        self.cycle(|cycle| cycle.wait = steps)
    }

    /// Sets the number of steps after the wait in which the profiler prepares to record. By default, 0.
    pub fn warmup(self, steps: u64) -> Self {
        self.cycle(|cycle| cycle.warmup = steps)
    }

    /// Sets the number of steps after the warm-up that are recorded. By default, 1. It must not be 0.
    pub fn active(self, steps: u64) -> Self {
        self.cycle(|cycle| cycle.active = steps)
    }

    /// Sets the number of cycles. By default, 0, which means no limit.
    pub fn repeat(self, cycles: u64) -> Self {
        self.cycle(|cycle| cycle.repeat = cycles)
    }

    /// Returns the phase of the step with this number, counted from 0.
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

    /// Returns the schedule with its cycles counted from this step on. Ranges of steps stay as they are.
    pub(crate) fn starting_at(mut self, step: u64) -> Self {
        if let Kind::Cycle(cycle) = &mut self.0 {
            cycle.skip_first = cycle.skip_first.saturating_add(step);
        }
        self
    }

    /// Returns how long the schedule waits, starting from a step that is not recorded.
    pub(crate) fn wait_from(&self, step: u64) -> WaitLength {
        match &self.0 {
            Kind::Cycle(cycle) => cycle.wait_from(step),
            Kind::Range { first, .. } => first.checked_sub(step).map_or(WaitLength::Forever, WaitLength::Steps),
            Kind::Always | Kind::Manual | Kind::Misused | Kind::Function(_) => WaitLength::Unknown,
        }
    }

    /// Returns the first step that is recorded, if known.
    pub(crate) fn first_recorded(&self) -> Option<u64> {
        match &self.0 {
            Kind::Always => Some(0),
            Kind::Cycle(cycle) => Some(cycle.first_recorded()),
            Kind::Range { first, .. } => Some(*first),
            Kind::Manual | Kind::Misused | Kind::Function(_) => None,
        }
    }

    /// Returns the number of steps a window should have, if fixed.
    pub(crate) fn active_steps(&self) -> Option<u64> {
        match &self.0 {
            Kind::Cycle(cycle) => Some(cycle.active),
            Kind::Range { first, last } if *last < u64::MAX => last.checked_sub(*first)?.checked_add(1),
            Kind::Range { .. } | Kind::Always | Kind::Manual | Kind::Misused | Kind::Function(_) => None,
        }
    }

    /// Returns whether only the program opens windows.
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.0, Kind::Manual)
    }

    /// Returns an error if the schedule is invalid.
    pub(crate) fn check(&self) -> Result<(), ScheduleError> {
        match &self.0 {
            Kind::Cycle(cycle) => cycle.check(),
            Kind::Misused => Err(ScheduleError::NotACycle),
            Kind::Range { first, last } if first > last => Err(ScheduleError::EmptyRange),
            _ => Ok(()),
        }
    }

    /// Returns whether the run is divided into steps, even if [`step`](crate::Profiler::step) is never called.
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

    fn first_recorded(&self) -> u64 {
        let wait = if self.skip_first_wait { 0 } else { self.wait };
        self.skip_first.saturating_add(wait).saturating_add(self.warmup)
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
            position if position < self.wait => Phase::Wait,
            position if position < self.wait + self.warmup => Phase::Warmup,
            position if position + 1 < length => Phase::Record,
            _ => Phase::RecordAndSave,
        }
    }

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

/// The length of a wait, during which nothing is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLength {
    Steps(u64),
    Forever,
    /// Unknown, since a function or the program decides.
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

/// The reason a [`Schedule`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// `active` is 0.
    NothingActive,
    /// A range of steps is empty.
    EmptyRange,
    /// The total number of steps does not fit into a `u64`.
    Overflow,
    /// One of the numbers of [`Schedule::new`] was set on another kind of schedule.
    NotACycle,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingActive => "active is 0, so no step would ever be recorded: use active(1) or more",
            Self::EmptyRange => "the range of steps is empty, so no step would ever be recorded",
            Self::NotACycle => {
                "skip_first, wait, warmup, active and repeat belong to Schedule::new(), not to another schedule"
            }
            Self::Overflow => "skip_first + (wait + warmup + active) * repeat exceeds the largest step number",
        })
    }
}

impl std::error::Error for ScheduleError {}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn the_first_recorded_step_is_known() {
        let cycle = || Schedule::new().skip_first(3).wait(2).warmup(1).active(2);
        for schedule in [cycle(), cycle().skip_first_wait(true), Schedule::new(), Schedule::steps(4..9)] {
            let mut schedule = schedule;
            let first = schedule.first_recorded();
            assert_eq!((0..20).find(|&step| schedule.phase(step).is_recording()), first, "{schedule:?}");
        }
        assert_eq!(Schedule::manual().first_recorded(), None);
    }
}
