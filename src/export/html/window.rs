//! Charts of one window: how busy each GPU was, and how much of its memory was in use, by the spans that allocated it.
//! Also the chart of a memory over the whole run.

use crate::{
    analysis::{Analysis, Interval, Intervals, MemorySeries, StepInterval, percent_of},
    export::json::{Array, Object},
    report::{Average, MemoryPeak},
    trace::{Allocation, DeviceId, MemoryChange, Timestamp, Trace, Work},
};
use rustc_hash::FxHashMap;
use std::{collections::BTreeMap, time::Duration};

/// The number of points of a chart.
pub(super) const POINTS: usize = 300;

/// Returns the index of the point that a moment of a window belongs to.
pub(super) fn point(trace: &Trace, at: Timestamp) -> usize {
    let (offset, whole) = (at.since(trace.start()).as_nanos(), trace.duration().as_nanos().max(1));
    let index = offset.saturating_mul(POINTS as u128) / whole;
    usize::try_from(index).unwrap_or(usize::MAX).min(POINTS - 1)
}

/// The charts of one window.
#[derive(Debug)]
pub(super) struct WindowCharts {
    label: String,
    /// The time until the GPUs had done all work of the window, and until the window closed on the host.
    durations: [Duration; 2],
    /// The number and the start of each step from the start of the window: of its [interval](StepInterval), and on the
    /// host.
    steps: [Vec<(u64, Duration)>; 2],
    busy: Vec<(DeviceId, Vec<f64>)>,
    memory: Vec<MemoryCurve>,
}

impl WindowCharts {
    /// Returns the charts of a window, or `None` if no GPU did anything.
    pub(super) fn of(window: &Analysis<'_>) -> Option<Self> {
        let trace = window.trace();
        // If the host runs ahead, the GPU works on steps of the window long after it has closed.
        let end = trace.work().map(Work::end).max().map_or(trace.end(), |last| last.max(trace.end()));
        let (busy, memory) = (busy(trace, end), MemoryCurve::of_devices(trace));
        if (busy.is_empty() && memory.is_empty()) || trace.duration().is_zero() {
            return None;
        }
        let starts = |step: &StepInterval| (step.step, step.start.since(trace.start()));
        let gpu_steps = window.step_intervals().iter().map(starts).collect();
        let steps = trace.steps().iter().map(|step| (step.number(), step.start().since(trace.start()))).collect();
        let rank = match trace.metadata().world_size {
            0 | 1 => String::new(),
            _ => format!(" of rank {}", trace.metadata().rank),
        };
        Some(Self {
            label: format!("window {}{rank}", trace.window()),
            durations: [end.since(trace.start()), trace.duration()],
            steps: [gpu_steps, steps],
            busy,
            memory,
        })
    }

    /// Writes the charts of how busy GPUs were.
    pub(super) fn write_busy(&self, charts: &mut Array<'_>) {
        for (device, busy) in &self.busy {
            charts.object(|chart| {
                chart.string("title", &format!("GPU {device} busy, {}", self.label));
                self.write_axes(true, chart);
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
                self.write_axes(false, chart);
                curve.write(chart);
            });
        }
    }

    /// Writes the axes of what happens on GPUs, or else on the host.
    fn write_axes(&self, is_gpu: bool, chart: &mut Object<'_>) {
        let side = usize::from(!is_gpu);
        chart.number("duration", self.durations[side].as_nanos());
        chart.array("steps", |array| {
            for (number, start) in &self.steps[side] {
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

/// Returns for each GPU the percentage of the time of each point in which it did anything, until `end`.
fn busy(trace: &Trace, end: Timestamp) -> Vec<(DeviceId, Vec<f64>)> {
    let width = end.since(trace.start()) / POINTS as u32;
    let curve = |device| {
        let work = trace.work().filter(|work| work.stream().device() == device);
        let busy = Intervals::new(work.map(Interval::of).collect());
        let start = |point: usize| trace.start() + width * point as u32;
        let percent = |point| percent_of(busy.covered(start(point), start(point + 1)), width);
        (device, (0..POINTS).map(percent).collect())
    };
    DeviceId::distinct(trace.work().map(|work| work.stream().device())).into_iter().map(curve).collect()
}

/// The memory of one GPU in use over a window, by owner.
///
/// An owner is a span that is nested in the outermost one, such as `forward` in `train_step`, or the outermost span
/// itself if the memory was allocated there.
#[derive(Debug)]
struct MemoryCurve {
    device: DeviceId,
    /// The owners, the largest first, each with its bytes at the highest moment of each point.
    owners: Vec<(String, Vec<u64>)>,
}

impl MemoryCurve {
    /// The number of owners that have their own line.
    const OWNERS: usize = 6;
    /// The name of the line for all others.
    const OTHERS: &str = "[others]";

    /// Returns the curve of each GPU that allocated or freed memory in the window.
    pub(super) fn of_devices(trace: &Trace) -> Vec<Self> {
        let devices = DeviceId::distinct(trace.allocations().map(Allocation::device));
        let owners = if devices.is_empty() { Vec::new() } else { owners(trace) };
        devices.into_iter().map(|device| Self::of(trace, device, &owners)).collect()
    }

    /// Returns the curve of a GPU. `owners` has a name for each span.
    fn of(trace: &Trace, device: DeviceId, owners: &[&str]) -> Self {
        let mut live: FxHashMap<u64, (&str, u64)> = FxHashMap::default();
        let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
        // For each point, the bytes in use and those of each owner at its highest moment; later points without a change
        // are like the end of the previous one.
        let mut points: Vec<Option<(u64, BTreeMap<&str, u64>)>> = vec![None; POINTS];
        let mut ends: Vec<Option<(u64, BTreeMap<&str, u64>)>> = points.clone();
        for allocation in trace.allocations().filter(|allocation| allocation.device() == device) {
            match allocation.change() {
                MemoryChange::Allocate => {
                    let span = allocation.span().map(|span| owners[span.id().index()]);
                    let (owner, size) = (span.unwrap_or(Average::UNATTRIBUTED), allocation.bytes().unwrap_or(0));
                    let replaced = live.insert(allocation.address(), (owner, size));
                    remove(&mut bytes, replaced);
                    *bytes.entry(owner).or_default() += size;
                }
                MemoryChange::Free => remove(&mut bytes, live.remove(&allocation.address())),
            }
            let at = point(trace, allocation.at());
            let now = (allocation.in_use(), bytes.clone());
            if points[at].as_ref().is_none_or(|(highest, _)| now.0 >= *highest) {
                points[at] = Some(now.clone());
            }
            ends[at] = Some(now);
        }
        let mut last: Option<(u64, BTreeMap<&str, u64>)> = None;
        for (at, end) in points.iter_mut().zip(ends) {
            let before = last.clone();
            last = end.or(last);
            if at.is_none() {
                *at = before;
            }
        }
        Self { device, owners: lines(&points) }
    }

    pub(super) fn device(&self) -> DeviceId {
        self.device
    }

    pub(super) fn write(&self, chart: &mut Object<'_>) {
        chart.string("unit", "memory");
        chart.array("lines", |lines| {
            for (owner, values) in &self.owners {
                lines.object(|line| {
                    line.string("name", owner);
                    line.array("values", |array| values.iter().for_each(|&bytes| array.number(bytes)));
                });
            }
        });
    }
}

/// Returns the lines of a chart: what was allocated before the window first, then the largest owners.
fn lines(points: &[Option<(u64, BTreeMap<&str, u64>)>]) -> Vec<(String, Vec<u64>)> {
    let mut largest: BTreeMap<&str, u64> = BTreeMap::new();
    for (owner, &bytes) in points.iter().flatten().flat_map(|(_, owners)| owners) {
        let most = largest.entry(owner).or_default();
        *most = bytes.max(*most);
    }
    let mut owners: Vec<_> = largest.into_iter().filter(|(_, most)| *most > 0).collect();
    owners.sort_by_key(|&(owner, most)| (std::cmp::Reverse(most), owner));
    let shown: Vec<&str> = owners.iter().take(MemoryCurve::OWNERS).map(|(owner, _)| *owner).collect();
    let mut lines = vec![(MemoryPeak::BEFORE.to_owned(), Vec::new())];
    lines.extend(shown.iter().map(|owner| ((*owner).to_owned(), Vec::new())));
    lines.push((MemoryCurve::OTHERS.to_owned(), Vec::new()));
    for point in points {
        let nothing = (0, BTreeMap::new());
        let (in_use, owners) = point.as_ref().unwrap_or(&nothing);
        // Owners together have no more than is in use, even if the records contradict that.
        let mut rest = *in_use;
        let mut take = |bytes: u64| {
            let taken = bytes.min(rest);
            rest -= taken;
            taken
        };
        let of_shown: Vec<u64> = shown.iter().map(|owner| take(owners.get(owner).copied().unwrap_or(0))).collect();
        let others = owners.iter().filter(|(owner, _)| !shown.contains(owner)).map(|(_, bytes)| *bytes);
        let others = take(others.fold(0, u64::saturating_add));
        lines[0].1.push(rest);
        of_shown.iter().zip(1..).for_each(|(&bytes, line)| lines[line].1.push(bytes));
        lines[shown.len() + 1].1.push(others);
    }
    lines.retain(|(_, values)| values.iter().any(|&bytes| bytes > 0));
    lines
}

fn remove<'a>(bytes: &mut BTreeMap<&'a str, u64>, freed: Option<(&'a str, u64)>) {
    if let Some((owner, size)) = freed {
        bytes.entry(owner).and_modify(|bytes| *bytes = bytes.saturating_sub(size));
    }
}

/// Returns for each span the name of the span that its memory is counted for.
fn owners(trace: &Trace) -> Vec<&str> {
    // A parent comes before its children. Everything nested in a second-level span counts for that span.
    let mut owners: Vec<(&str, u8)> = Vec::with_capacity(trace.spans().len());
    for span in trace.spans() {
        owners.push(match span.parent().map(|parent| owners[parent.id().index()]) {
            None => (span.name(), 0),
            Some((_, 0)) => (span.name(), 1),
            Some(owner) => owner,
        });
    }
    owners.into_iter().map(|(name, _)| name).collect()
}

/// Writes the chart of one memory over the run. Its points are evenly spaced in time.
pub(super) fn write_memory_of_run(series: &MemorySeries, charts: &mut Array<'_>) {
    let points = series.points();
    charts.object(|chart| {
        chart.string("title", &series.source().to_string());
        let (first, last) = (points.first().map(|it| it.at), points.last().map(|it| it.at));
        chart.number("duration", last.unwrap_or_default().since(first.unwrap_or_default()).as_nanos());
        chart.string("unit", "memory");
        chart.array("lines", |lines| {
            lines.object(|line| {
                line.string("name", "in use");
                line.array("values", |array| points.iter().for_each(|point| array.number(point.bytes)));
            });
        });
    });
}
