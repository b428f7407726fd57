//! The latest value of each counter in the current step, for whoever wants to know of every step.

use crate::{thread, trace::convention};
use std::{
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tracing::{
    Event,
    field::{Field, Visit},
};

/// What events have said since the step began, whether it is recorded or not.
#[derive(Debug)]
pub(crate) struct Counters {
    latest: Mutex<Latest>,
    /// Steps, and values of counters, that nobody was told of.
    lost: AtomicU64,
}

/// The latest values of some counters.
#[derive(Debug)]
pub(crate) struct Latest {
    values: Vec<(&'static str, f64)>,
    /// Values for which there was no room.
    lost: u64,
}

impl Counters {
    /// Counters of different names in one step. Values of more are counted, and lost.
    pub(crate) const MOST: usize = 256;

    pub(super) fn new() -> Self {
        Self { latest: Mutex::new(Latest { values: Vec::with_capacity(Self::MOST), lost: 0 }), lost: AtomicU64::new(0) }
    }

    /// Takes the counters of an event, if it has any: most have not, and are only asked for the names of their fields.
    #[inline]
    pub(super) fn note(&self, event: &Event<'_>) {
        // The answer is the same for every event of a callsite, and could be remembered. But events have few fields, and most names differ from ours in
        // their length or first letter: this took 0.3 to 3 ns an event when measured, so that there is little to gain.
        if event.metadata().fields().iter().any(|field| field.name().starts_with(convention::COUNTER)) {
            self.take_from(event);
        }
    }

    #[inline(never)]
    fn take_from(&self, event: &Event<'_>) {
        if !thread::is_muted() {
            // No code of users runs in here: numbers are copied, and nothing is formatted.
            self.with(|latest| event.record(latest));
        }
    }

    /// Counts what nobody will be told of.
    pub(crate) fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// How much that was since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Runs `f` on the values of the current step.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Latest) -> R) -> R {
        f(&mut self.latest.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Latest {
    /// The values, in the order in which their names were first heard of.
    pub(crate) fn values(&self) -> &[(&'static str, f64)] {
        &self.values
    }

    /// Begins the next step, and returns how many values were lost.
    pub(crate) fn clear(&mut self) -> u64 {
        self.values.clear();
        std::mem::take(&mut self.lost)
    }

    fn set(&mut self, field: &Field, value: f64) {
        let Some(name) = field.name().strip_prefix(convention::COUNTER) else { return };
        if let Some((_, latest)) = self.values.iter_mut().find(|(known, _)| *known == name) {
            *latest = value;
        } else if self.values.len() < Counters::MOST {
            self.values.push((name, value));
        } else {
            self.lost += 1;
        }
    }
}

impl Visit for Latest {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value as f64);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value as f64);
    }

    /// Texts are no samples.
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
