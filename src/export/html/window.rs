//! Charts of one window: how busy each GPU was, and how much of its memory was in use.

use super::{
    memory::MemoryCurve,
    points::{POINTS, point},
};
use crate::{
    export::json::{Array, Object},
    trace::{DeviceId, Timestamp, Trace},
};
use std::{collections::BTreeMap, time::Duration};

/// The charts of one window.
#[derive(Debug)]
pub(super) struct WindowCharts {
    label: String,
    duration: Duration,
    /// The number and the start of each step, from the start of the window.
    steps: Vec<(u64, Duration)>,
    busy: BTreeMap<DeviceId, Vec<f64>>,
    memory: Vec<MemoryCurve>,
}

impl WindowCharts {
    /// Returns the charts of a window, or `None` if no GPU did anything.
    pub(super) fn of(trace: &Trace) -> Option<Self> {
        let (busy, memory) = (busy(trace), MemoryCurve::of_devices(trace));
        if (busy.is_empty() && memory.is_empty()) || trace.duration().is_zero() {
            return None;
        }
        let steps = trace.steps().iter().map(|step| (step.number(), step.start().since(trace.start()))).collect();
        let rank = match trace.metadata().world_size {
            0 | 1 => String::new(),
            _ => format!(" of rank {}", trace.metadata().rank),
        };
        Some(Self {
            label: format!("window {}{rank}", trace.window()),
            duration: trace.duration(),
            steps,
            busy,
            memory,
        })
    }

    /// Writes the charts of how busy GPUs were.
    pub(super) fn write_busy(&self, charts: &mut Array<'_>) {
        for (device, busy) in &self.busy {
            charts.object(|chart| {
                chart.string("title", &format!("GPU {device} busy, {}", self.label));
                self.write_axes(chart);
                chart.string("unit", "percent");
                chart.number("top", 100);
                chart.array("lines", |lines| {
                    lines.object(|line| {
                        line.string("name", "busy");
                        line.array("values", |array| busy.iter().for_each(|value| array.float(round(*value))));
                    });
                });
            });
        }
    }

    /// Writes the charts of the memory in use.
    pub(super) fn write_memory(&self, charts: &mut Array<'_>) {
        for curve in &self.memory {
            charts.object(|chart| {
                chart.string("title", &format!("memory of GPU {} in use, {}", curve.device(), self.label));
                self.write_axes(chart);
                curve.write(chart);
            });
        }
    }

    fn write_axes(&self, chart: &mut Object<'_>) {
        chart.number("duration", self.duration.as_nanos());
        chart.array("steps", |array| {
            for (number, start) in &self.steps {
                array.array(|step| {
                    step.number(*number);
                    step.number(start.as_nanos());
                });
            }
        });
    }

    pub(super) fn has_memory(&self) -> bool {
        !self.memory.is_empty()
    }
}

/// Returns a number with one decimal.
fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// Returns for each GPU the percentage of the time of each point in which it did anything.
fn busy(trace: &Trace) -> BTreeMap<DeviceId, Vec<f64>> {
    let mut intervals: BTreeMap<DeviceId, Vec<(Timestamp, Timestamp)>> = BTreeMap::new();
    for work in trace.work() {
        intervals.entry(work.stream().device()).or_default().push((work.start(), work.end()));
    }
    let width = trace.duration().as_secs_f64() / POINTS as f64;
    let curve = |mut intervals: Vec<(Timestamp, Timestamp)>| {
        intervals.sort_unstable();
        let mut busy = vec![0.0; POINTS];
        let mut until = trace.start();
        for (start, end) in intervals {
            let (start, end) = (start.max(until), end.min(trace.end()));
            if start >= end {
                continue;
            }
            until = end;
            let [from, to] = [start, end].map(|at| at.since(trace.start()).as_secs_f64() / width);
            for (index, share) in busy.iter_mut().enumerate().take(point(trace, end) + 1).skip(point(trace, start)) {
                let (left, right) = (from.max(index as f64), to.min((index + 1) as f64));
                *share += 100.0 * (right - left).max(0.0);
            }
        }
        busy.iter().map(|share: &f64| share.min(100.0)).collect()
    };
    intervals.into_iter().map(|(device, intervals)| (device, curve(intervals))).collect()
}
