//! The table of GPU counters: how busy the SMs, the tensor cores and the memory were in each span, module and kernel.

use super::{
    table::Table,
    units,
    view::{View, table_of_rows},
};
use crate::{
    analysis::{Analysis, CounterBound, CounterSubject, CounterUse, CounterValue, Flops},
    trace::{MetricMeaning, Span, Trace},
};
use std::{collections::BTreeMap, fmt, time::Duration};

/// A table of the GPUs' hardware counters while the work of each span ran, longest first: see
/// [`ProfilerBuilder::counters`](crate::ProfilerBuilder::counters).
///
/// Values whose standard error is more than [`MAX_ERROR`](Self::MAX_ERROR) are left out: there were too few samples, or
/// other work ran in the same ones.
///
/// ```
/// # use kernspan::report::CountersBy;
/// # fn show(report: &kernspan::Report) {
/// for row in report.counters().by(CountersBy::Kernel).limit(3).rows() {
///     if let (Some(tensor), Some(dram)) = (row.tensor_active, row.dram_active) {
///         println!("{}: tensor cores {tensor:.0} %, memory {dram:.0} %", row.name);
///     }
/// }
/// println!("{}", report.counters());
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct CounterTable<'a> {
    counters: &'a CountersOfRun,
    by: CountersBy,
    view: View,
}

/// The kind of rows in a [`CounterTable`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountersBy {
    /// Spans, by name, with those nested in them.
    #[default]
    Span,
    /// Modules, by their path in the model (`op.module`).
    Module,
    /// Kernels, copies and fills, by name.
    Kernel,
    /// Steps, by number.
    Step,
}

/// A row of a [`CounterTable`].
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CounterAverage {
    /// The name of the span, module or kernel, or the number of the step.
    pub name: String,
    /// The GPU's time for it that samples cover.
    pub gpu: Duration,
    /// The number of samples in which it ran.
    pub samples: u64,
    /// The time in which SMs had work, in percent, averaged over all SMs.
    pub sm_active: Option<f64>,
    /// The time in which the tensor cores were busy, in percent.
    pub tensor_active: Option<f64>,
    /// The use of the memory's bandwidth, in percent of its maximum.
    pub dram_active: Option<f64>,
    /// The bytes read from and written to the GPU's memory, per second.
    pub dram_bytes_per_second: Option<f64>,
    /// The frequency of the SMs' clock, in hertz.
    pub sm_clock: Option<f64>,
    /// Floating-point operations per second of GPU time, if fields state them (`op.flops`).
    pub flops_per_second: Option<f64>,
    /// Floating-point operations for each byte that was read or written: the measured arithmetic intensity. `None` if
    /// the bytes are not known [well enough](CounterTable::MAX_INTENSITY_ERROR).
    pub intensity: Option<f64>,
    /// The part of the GPU that limits it.
    pub bound: Option<CounterBound>,
}

impl<'a> CounterTable<'a> {
    /// The number of rows by default.
    pub const LIMIT: usize = 15;
    /// The largest standard error of a value that is shown, in percent of the largest value of its metric.
    pub const MAX_ERROR: f64 = CounterValue::MAX_ERROR;
    /// The largest standard error of the bytes of an [`intensity`](CounterAverage::intensity), in percent of these. In
    /// 19 of 20 cases they are then off by less than half, and the intensity by less than a factor of two.
    ///
    /// [`MAX_ERROR`](Self::MAX_ERROR) is not enough for it: where there is little traffic, three percent of the most
    /// that the memory can do may be all of it.
    pub const MAX_INTENSITY_ERROR: f64 = 25.0;

    pub(super) fn new(counters: &'a CountersOfRun) -> Self {
        Self { counters, by: CountersBy::default(), view: View::new(Self::LIMIT) }
    }

    /// Sets the kind of rows. By default, spans.
    pub fn by(mut self, by: CountersBy) -> Self {
        self.by = by;
        self.view.has_kernels = by == CountersBy::Kernel;
        self
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counters.totals.is_empty()
    }

    /// Why counters were not sampled, or less than requested, with what to change; each reason once.
    #[must_use]
    pub fn problems(&self) -> &'a [String] {
        &self.counters.problems
    }

    /// The mean frequency of the SMs' clock while the GPU worked, in hertz, and the highest that the GPU has.
    #[must_use]
    pub fn sm_clock(&self) -> Option<(f64, f64)> {
        let steps = self.counters.totals.iter().filter(|(subject, _)| matches!(subject, CounterSubject::Step(_)));
        let of_step = |totals: &CounterTotals| Some((totals.sums.get(&MetricMeaning::SmClock)?.0, totals.gpu));
        let of_steps = steps.filter_map(|(_, totals)| of_step(totals));
        let (sum, time) = of_steps.fold((0.0, Duration::ZERO), |(sum, time), (more, gpu)| (sum + more, time + gpu));
        let highest = self.counters.highest_clock.filter(|_| !time.is_zero())?;
        Some((sum / time.as_secs_f64(), highest))
    }

    /// Writes that the clock was below its maximum, if by more than a tenth.
    pub(super) fn write_clock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sm_clock().filter(|(clock, highest)| clock < &(0.9 * highest)) {
            Some((clock, highest)) => writeln!(
                f,
                "while the GPU worked, its clock was {:.0} MHz of {:.0}: power or temperature limits it, or pauses",
                clock / 1e6,
                highest / 1e6
            ),
            None => Ok(()),
        }
    }

    fn all_rows(&self) -> Vec<CounterAverage> {
        let row = |(subject, totals): (&CounterSubject, &CounterTotals)| {
            let name = match (self.by, subject) {
                (CountersBy::Span, CounterSubject::Span(name))
                | (CountersBy::Module, CounterSubject::Module(name))
                | (CountersBy::Kernel, CounterSubject::Kernel(name)) => name.clone(),
                (CountersBy::Step, CounterSubject::Step(number)) => number.to_string(),
                _ => return None,
            };
            let (flops, time) = self.counters.flops.get(subject).copied().unwrap_or_default();
            Some(totals.row(name, &self.counters.largest, flops.per_second(time)))
        };
        let mut rows: Vec<_> = self.counters.totals.iter().filter_map(row).collect();
        if self.by != CountersBy::Step {
            rows.sort_by(|a, b| b.gpu.cmp(&a.gpu).then_with(|| a.name.cmp(&b.name)));
        }
        rows
    }
}

table_of_rows!(CounterTable, CounterAverage, "no hardware counters were sampled");

impl CounterAverage {
    /// Returns the table of the rows.
    pub(super) fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        table.text("GPU counters", rows, |row| row.name.clone());
        table.number("GPU time", rows, |row| units::column_time(row.gpu));
        table.number("SM", rows, |row| row.sm_active.map(units::percent));
        table.number("Tensor", rows, |row| row.tensor_active.map(units::percent));
        table.number("DRAM", rows, |row| row.dram_active.map(units::percent));
        table.number("DRAM traffic", rows, |row| row.dram_bytes_per_second.map(units::bandwidth)).droppable(2);
        table.number("FLOP/s", rows, |row| row.flops_per_second.map(units::flop_rate)).droppable(3);
        table.number("FLOP/byte", rows, |row| row.intensity.map(|it| format!("{it:.1}"))).droppable(4);
        table.text("Limit", rows, |row| row.bound.map_or("", CounterBound::as_str).to_owned());
        table.number("# of Samples", rows, |row| row.samples.to_string()).droppable(1);
        table
    }
}

/// The counters of all windows.
#[derive(Debug, Default)]
pub(super) struct CountersOfRun {
    totals: BTreeMap<CounterSubject, CounterTotals>,
    /// The largest value of each metric, against which errors are judged.
    largest: BTreeMap<MetricMeaning, f64>,
    /// The floating-point operations of spans and modules, and the GPU time of these.
    flops: BTreeMap<CounterSubject, (Flops, Duration)>,
    problems: Vec<String>,
    /// The highest frequency of the SMs' clock, in hertz.
    highest_clock: Option<f64>,
}

/// The sums of the values of one subject, weighted by GPU time.
#[derive(Debug, Default)]
struct CounterTotals {
    gpu: Duration,
    samples: u64,
    /// The sum of the values, and of the squares of the errors, with their weights in seconds.
    sums: BTreeMap<MetricMeaning, (f64, f64)>,
}

impl CountersOfRun {
    pub(super) fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        for counters in trace.gpu_counters() {
            let several = trace.gpu_counters().len() > 1;
            let of_gpu = |problem: &str| format!("GPU {}: {problem}", counters.device());
            let problem = counters.problem().map(|problem| if several { of_gpu(problem) } else { problem.to_owned() });
            self.problems.extend(problem.filter(|problem| !self.problems.contains(problem)));
            let device = trace.device(counters.device());
            self.highest_clock = self.highest_clock.or(device.map(|device| 1e3 * f64::from(device.clock_khz)));
            for (index, metric) in counters.metrics().iter().enumerate() {
                let largest = counters.samples().map(|(_, values)| values[index]).fold(0.0, f64::max);
                let known = self.largest.entry(metric.meaning()).or_default();
                *known = if metric.unit() == "%" { 100.0 } else { known.max(largest) };
            }
        }
        let uses = window.counter_uses();
        uses.iter().for_each(|of_subject| self.totals.entry(of_subject.subject.clone()).or_default().add(of_subject));
        if !uses.is_empty() {
            self.add_flops(trace, window);
        }
    }

    /// Adds the operations of spans, which count once if they are nested in spans of the same name.
    fn add_flops(&mut self, trace: &Trace, window: &Analysis<'_>) {
        let mut gpu = vec![Duration::ZERO; trace.spans().len()];
        for work in trace.work() {
            for span in work.span().into_iter().flat_map(Span::stack) {
                gpu[span.id().index()] += work.duration();
            }
        }
        for span in trace.spans() {
            let flops = window.flops().of_span(span.id());
            let outer = || span.stack().skip(1);
            if flops.count == 0 {
                continue;
            }
            let mut add = |subject: CounterSubject| {
                let (sum, time) = self.flops.entry(subject).or_default();
                sum.add(&flops);
                *time += gpu[span.id().index()];
            };
            if outer().all(|other| other.name() != span.name()) {
                add(CounterSubject::Span(span.name().to_owned()));
            }
            let module = |span: Span<'_>| span.fields().op().module().map(str::to_owned);
            if let Some(name) = module(span).filter(|name| outer().all(|other| module(other).as_ref() != Some(name))) {
                add(CounterSubject::Module(name));
            }
        }
    }
}

impl CounterTotals {
    fn add(&mut self, more: &CounterUse) {
        let seconds = more.gpu.as_secs_f64();
        self.gpu += more.gpu;
        self.samples += more.samples;
        for value in &more.values {
            let (sum, squares) = self.sums.entry(value.metric.meaning()).or_default();
            *sum += seconds * value.mean;
            *squares += (seconds * value.error).powi(2);
        }
    }

    fn row(
        &self,
        name: String,
        largest: &BTreeMap<MetricMeaning, f64>,
        flops_per_second: Option<f64>,
    ) -> CounterAverage {
        let seconds = self.gpu.as_secs_f64();
        let with_error = |meaning| {
            let (sum, squares) = self.sums.get(&meaning).copied()?;
            let error = squares.sqrt() / seconds;
            let percent = 100.0 * error / largest.get(&meaning).copied().unwrap_or(0.0);
            (percent <= CounterTable::MAX_ERROR).then_some((sum / seconds, error))
        };
        let value = |meaning| with_error(meaning).map(|(value, _)| value);
        // The same samples have both, so that their errors may have the same sign.
        let traffic = with_error(MetricMeaning::DramRead).zip(with_error(MetricMeaning::DramWrite));
        let traffic = traffic.map(|((read, of_read), (write, of_write))| (read + write, of_read + of_write));
        let is_known = |&(bytes, error): &(f64, f64)| 100.0 * error < CounterTable::MAX_INTENSITY_ERROR * bytes;
        let precise = traffic.filter(is_known).map(|(bytes, _)| bytes);
        let mut row = CounterAverage {
            name,
            gpu: self.gpu,
            samples: self.samples,
            sm_active: value(MetricMeaning::SmActive),
            tensor_active: value(MetricMeaning::TensorActive),
            dram_active: value(MetricMeaning::DramActive),
            dram_bytes_per_second: traffic.map(|(bytes, _)| bytes),
            sm_clock: value(MetricMeaning::SmClock),
            flops_per_second,
            intensity: flops_per_second.zip(precise).map(|(flops, bytes)| flops / bytes),
            bound: None,
        };
        let busy = row.sm_active.zip(row.tensor_active).zip(row.dram_active);
        row.bound = busy.map(|((sm, tensor), dram)| CounterBound::of(sm, tensor, dram));
        row
    }
}

#[cfg(test)]
mod tests;
