//! The time that each part of a window takes, changes to it, and the cost of recording, which is left out of it.
//!
//! Constants say how much longer a profiler makes calls and spans. If the time of a step while nothing is recorded is
//! known, the host is taken to be as much faster or slower as it takes for that.

use super::{Simulation, host::Item, tasks::TaskKind};
use crate::trace::Trace;
use std::time::Duration;

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

    /// Returns the items and the tasks that take another time in one of these costs, or wait for something else.
    pub(in crate::analysis) fn changed(&self, others: &[&Self]) -> (Vec<usize>, Vec<usize>) {
        let of_item = |costs: &Self, item: usize| (costs.items[item], costs.waits[item]);
        let of_task = |costs: &Self, task: usize| (costs.tasks[task], costs.ordered[task], costs.exists[task]);
        let is_other = |of: &dyn Fn(&Self) -> bool| others.iter().any(|other| of(other));
        let items = (0..self.items.len()).filter(|&it| is_other(&|other| of_item(other, it) != of_item(self, it)));
        let tasks = (0..self.tasks.len()).filter(|&it| is_other(&|other| of_task(other, it) != of_task(self, it)));
        (items.collect(), tasks.collect())
    }

    /// Whether the host as a whole is as fast, and latencies are as short.
    pub(in crate::analysis) fn has_same_speed(&self, other: &Self) -> bool {
        let speeds = |it: &Self| (it.host, it.latencies, it.longest_gap, it.longest_launch);
        speeds(self) == speeds(other)
    }

    /// Takes a task out of the order of its stream, as if it were on a stream of its own.
    pub(in crate::analysis) fn take_out_of_order(&mut self, task: usize) {
        self.ordered[task] = false;
    }
}

impl Simulation<'_> {
    /// The part of each call that causes work by which recording makes it longer, and the most nanoseconds of that.
    /// Measured with CUPTI 13.0 on an H200: see `benches/README.md`.
    const CALL_OVERHEAD: (f64, u64) = (0.3, 2_000);
    /// The same in PyTorch's profiler, by the trainings that were looked at.
    const TORCH_CALL_OVERHEAD: (f64, u64) = (0.35, 3_000);
    /// The part by which PyTorch's profiler makes the time between two calls or spans longer, besides all that, and the
    /// most nanoseconds of that: by the same.
    const TORCH_HOST: (f64, u64) = (0.08, 4_000);
    /// The most of an item's time that is cost of recording.
    const LARGEST_OVERHEAD: f64 = 0.9;
    /// Steps of the same program differ by this part in any case: means of GPU-bound trainings in
    /// `tests/fixtures/trainings` do.
    const NEAR: f64 = 0.03;
    /// The least and the most of its computed time that a host may take while nothing is recorded: in these trainings,
    /// 0.6 to 1.5. Beyond, the time is that of another program.
    const HOST_RANGE: (f64, f64) = (0.4, 2.0);

    /// The costs without those of recording.
    ///
    /// Work from before the window is left out, as if the GPU were idle when the window opens. It is work of the same
    /// program, so that a change would change it, too; if it were kept as it is, the launch queue, which holds a
    /// thousand launches, would keep the window's own work waiting for several unchanged steps. Without it, steps take
    /// as long as the slower of host and GPU, which is what they take in the long run, however far the host runs ahead.
    pub(in crate::analysis) fn costs(&self) -> Costs {
        let mut costs = Costs { is_recorded: false, ..self.recorded() };
        for (index, _) in self.tasks.iter().enumerate().filter(|(_, task)| task.earlier) {
            costs.remove_task(index);
        }
        for (index, item) in self.items.iter().enumerate().filter(|(_, item)| item.waited_before) {
            costs.items[index] = item.nanos().min(Item::CALL);
        }
        let torch = torch_overhead(self.trace);
        let mut seen = None;
        for task in &self.tasks {
            // Only calls that cause work are recorded by the GPU's library, too. A graph causes much at once.
            if let Some(item) = task.item.filter(|_| seen != task.item) {
                seen = task.item;
                let nanos = costs.items[item];
                let (part, most) = if torch.is_some() { Self::TORCH_CALL_OVERHEAD } else { Self::CALL_OVERHEAD };
                costs.items[item] = nanos - most.min((nanos as f64 * part) as u64);
            }
        }
        if let Some(each) = torch {
            let (part, most) = Self::TORCH_HOST;
            for (index, item) in self.items.iter().enumerate().filter(|(_, item)| !item.waited()) {
                let nanos = costs.items[index];
                let overhead = each * u64::from(item.edges) + most.min((nanos as f64 * part) as u64);
                costs.items[index] = nanos - overhead.min((nanos as f64 * Self::LARGEST_OVERHEAD) as u64);
            }
        }
        costs.scale_host(self.host.unwrap_or(1.0));
        costs
    }

    /// Finds the part of its time that the host takes if a step takes this long; `None` if there is none that explains
    /// it. If the GPU bounds the step, that is so for many, of which it is the one nearest to 1.
    pub(super) fn host_at(&self, step: Duration) -> Option<f64> {
        let costs = self.costs();
        let run = |host: f64| {
            let mut costs = costs.clone();
            costs.scale_host(host);
            self.run(&costs).as_secs_f64() / step.as_secs_f64()
        };
        let is_near = |ratio: f64| (ratio - 1.0).abs() <= Self::NEAR;
        let (least, most) = Self::HOST_RANGE;
        let (mut near, mut far) = (1.0, if run(1.0) > 1.0 { least } else { most });
        if is_near(run(near)) {
            return Some(near);
        }
        if !is_near(run(far)) && (run(far) > 1.0) == (run(near) > 1.0) {
            return None;
        }
        // Ten halvings are exact to a thousandth.
        for _ in 0..10 {
            let middle = f64::midpoint(near, far);
            if (run(middle) > 1.0) == (run(1.0) > 1.0) && !is_near(run(middle)) {
                near = middle;
            } else {
                far = middle;
            }
        }
        Some(far)
    }
}

/// Returns the nanoseconds by which PyTorch's profiler delays the host at the beginning and at the end of each
/// operator; `None` for other traces. Without the profiler, steps that the host bounds take this much less: by the
/// trainings of `tests/fixtures/trainings` that were looked at, 2 µs for an operator, or 5 with its shapes.
fn torch_overhead(trace: &Trace) -> Option<u64> {
    trace.torch()?;
    let has_shapes = trace.spans().take(1_000).any(|span| span.fields().op().shapes().next().is_some());
    Some(if has_shapes { 2_250 } else { 1_000 })
}
