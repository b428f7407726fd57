//! The time that each part of a window takes, and changes to it.

use super::task::TaskKind;

/// The time that each part of a window takes.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Costs {
    /// The nanoseconds of each item, without those in which it waits.
    pub(super) items: Vec<u64>,
    /// Whether each item waits for what it waited for.
    pub(super) waits: Vec<bool>,
    /// The nanoseconds of each task.
    pub(super) tasks: Vec<u64>,
    /// Whether each task keeps the order of its stream.
    pub(super) ordered: Vec<bool>,
    /// Whether each task exists: others begin as if it were not there.
    pub(super) exists: Vec<bool>,
    /// The factor of the time of all items.
    pub(super) host: f64,
    /// Whether latencies are typical ones instead of those recorded.
    pub(super) typical: bool,
    /// The factor of all latencies.
    pub(super) latencies: f64,
    /// The most nanoseconds between two tasks of a stream, if the second was asked for in time.
    pub(super) longest_gap: i64,
    /// The most nanoseconds from a call to its task, if nothing else keeps that from starting.
    pub(super) longest_launch: i64,
    /// Whether the cost of recording is part of latencies.
    pub(super) is_recorded: bool,
}

impl Costs {
    /// Sets the time of an item, which then waits for nothing.
    pub(in crate::analysis) fn set_item(&mut self, item: usize, nanos: u64) {
        (self.items[item], self.waits[item]) = (nanos, false);
    }

    /// Has an item take its own time only, and wait for nothing.
    pub(in crate::analysis) fn do_not_wait(&mut self, item: usize) {
        self.waits[item] = false;
    }

    /// The time that an item takes without waiting.
    pub(in crate::analysis) fn item(&self, item: usize) -> u64 {
        self.items[item]
    }

    /// Sets the time that an item takes without waiting.
    pub(in crate::analysis) fn scale_item(&mut self, item: usize, nanos: f64) {
        self.items[item] = nanos as u64;
    }

    /// Has all items take this part of their time.
    pub(in crate::analysis) fn scale_host(&mut self, factor: f64) {
        self.host *= factor;
    }

    /// Has latencies take less time by this factor.
    pub(in crate::analysis) fn scale_latencies(&mut self, factor: f64) {
        self.latencies = 1.0 / factor;
    }

    /// Limits the time between two tasks of a stream, if the second was asked for in time.
    pub(in crate::analysis) fn limit_gaps(&mut self, nanos: i64) {
        self.longest_gap = nanos;
    }

    /// Limits the time from a call to its task, if nothing else keeps that from starting.
    pub(in crate::analysis) fn limit_launches(&mut self, nanos: i64) {
        self.longest_launch = nanos;
    }

    /// Subtracts the cost of recording from the latency of a task, and scales it.
    pub(super) fn latency(&self, kind: TaskKind, recorded: i64) -> i64 {
        let own = if self.is_recorded { recorded } else { recorded.min(0).max(recorded - kind.overhead()) };
        (own as f64 * self.latencies) as i64
    }

    /// Sets the time of a task.
    pub(in crate::analysis) fn set_task(&mut self, task: usize, nanos: u64) {
        self.tasks[task] = nanos;
    }

    /// Removes a task.
    pub(in crate::analysis) fn remove_task(&mut self, task: usize) {
        (self.tasks[task], self.exists[task]) = (0, false);
    }

    /// Takes a task out of the order of its stream, as if it were on a stream of its own.
    pub(in crate::analysis) fn take_out_of_order(&mut self, task: usize) {
        self.ordered[task] = false;
    }
}
