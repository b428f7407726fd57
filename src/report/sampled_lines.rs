//! The tables of sampled stacks: the lines that spans were in, and the functions over all spans.

use super::{
    table::Table,
    units,
    view::{View, table_of_rows},
};
use crate::analysis::{SampledFunction, SampledLine, SampledStacks, SampledTime, SamplingTotals};
use std::{fmt, time::Duration};

/// A table of the lines that the time of each span itself went to, most time first: see
/// [`StackSampling`](crate::trace::StackSampling).
///
/// A line that takes at least 10 % of its span's CPU time is marked with `*`. Shares are estimates: `±` is how many
/// points they may be off, and there are none for spans with fewer than 25 samples.
///
/// The span `forward (pool)` is what threads of a pool of rayon or Candle did for `forward`: see
/// [`StackSample::attribution`](crate::trace::StackSample::attribution).
///
/// Time in the standard library, tokio, rayon, crossbeam, tracing and kernspan belongs to the line that called them.
/// For a line of another library, the table also has the line of the program that led to it.
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// println!("{}", report.lines().in_span("backward").limit(5));
/// for line in report.lines().own(true).rows().iter().filter(|line| line.is_hot()) {
///     println!("{}: {:?}", line.function, line.time.cpu);
/// }
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    stacks: Option<&'a SampledStacks>,
    view: View,
    own: bool,
    span: Option<&'a str>,
}

impl<'a> Lines<'a> {
    /// The number of rows by default.
    pub const LIMIT: usize = 100;

    pub(super) fn new(stacks: Option<&'a SampledStacks>) -> Self {
        Self { stacks, view: View::new(Self::LIMIT), own: false, span: None }
    }

    /// Sets whether lines of libraries are added to the lines of the program's own source that led to them. By default,
    /// no.
    pub fn own(mut self, own: bool) -> Self {
        self.own = own;
        self
    }

    /// Leaves out all but the lines of spans with this name.
    pub fn in_span(mut self, name: &'a str) -> Self {
        self.span = Some(name);
        self
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.stacks.is_some_and(|stacks| stacks.lines.iter().any(|line| self.has(line)))
    }

    fn has(&self, line: &SampledLine) -> bool {
        self.span.is_none() || line.span.as_deref() == self.span
    }

    fn all_rows(&self) -> Vec<SampledLine> {
        let rows = |stacks: &SampledStacks| if self.own { stacks.own_lines() } else { stacks.lines.clone() };
        self.stacks.map(rows).unwrap_or_default().into_iter().filter(|line| self.has(line)).collect()
    }
}

table_of_rows!(Lines, SampledLine, "no stacks were sampled");

/// The text in place of a span outside all spans.
pub(crate) const OUTSIDE_SPANS: &str = "[outside spans]";

/// Returns a time, or none if there is none.
fn some_time(time: Duration) -> Option<String> {
    (!time.is_zero()).then(|| units::column_time(time))
}

impl SampledLine {
    /// Returns the name of the spans, and whether a pool worked for them.
    pub(crate) fn span_text(&self) -> String {
        self.span_label().unwrap_or_else(|| OUTSIDE_SPANS.to_owned())
    }

    /// Returns the line, or else the library.
    pub(crate) fn place_text(&self) -> Option<String> {
        let library = Some(&self.library).filter(|library| !library.is_empty());
        self.line.clone().or_else(|| library.map(|library| format!("in {library}")))
    }

    /// Returns the line of the program's own source, if it is another one.
    pub(crate) fn called_from(&self) -> Option<String> {
        self.own_line.clone().filter(|own| Some(own) != self.line.as_ref())
    }

    /// Returns the table of the rows.
    pub(super) fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        table.text("Span", rows, Self::span_text).keep_start();
        table.text("Line", rows, Self::place_text);
        table.text("Function", rows, |row| row.function.clone()).functions();
        table.text("Called from", rows, Self::called_from);
        table.number("CPU %", rows, |row| {
            let mark = if row.is_hot() { "* " } else { "" };
            row.percent().map(|percent| format!("{mark}{}", units::percent(percent)))
        });
        table.number("±", rows, |row| row.margin().map(|margin| format!("{margin:.1}"))).droppable(2);
        table.number("CPU", rows, |row| some_time(row.time.cpu));
        table.number("Waiting", rows, |row| some_time(row.time.waiting));
        table.number("Samples", rows, |row| row.time.samples.to_string());
        table.number("Waits", rows, |row| {
            Some(row.time.waits).filter(|waits| *waits > 0).map(|waits| waits.to_string())
        });
        table.number("At edge", rows, |row| units::count(row.time.at_edge)).droppable(1);
        table.note(format!(
            "CPU % is of the span's own CPU time, ± points; * {:.0} % or more; – fewer than {} samples in the span",
            Self::HOT,
            SampledTime::MIN_SAMPLES
        ));
        table
    }
}

/// A table of the functions that threads were in, over all spans, most CPU time of their own first: see
/// [`StackSampling`](crate::trace::StackSampling).
///
/// Time in the standard library, tokio, rayon, crossbeam, tracing and kernspan belongs to the function that called
/// them.
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// for row in report.functions().limit(3).rows() {
///     let spans: Vec<_> = row.spans.iter().filter_map(|(span, _)| span.as_deref()).collect();
///     println!("{} took {:?} in {}", row.function, row.self_time.cpu, spans.join(", "));
/// }
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct Functions<'a> {
    stacks: Option<&'a SampledStacks>,
    view: View,
}

impl<'a> Functions<'a> {
    /// The number of rows by default.
    pub const LIMIT: usize = 100;
    /// The number of spans that a row names.
    const SPANS: usize = 3;

    pub(super) fn new(stacks: Option<&'a SampledStacks>) -> Self {
        Self { stacks, view: View::new(Self::LIMIT) }
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.is_none_or(|stacks| stacks.functions.is_empty())
    }

    fn all_rows(&self) -> Vec<SampledFunction> {
        self.stacks.map(|stacks| stacks.functions.clone()).unwrap_or_default()
    }
}

table_of_rows!(Functions, SampledFunction, "no stacks were sampled");

impl SampledFunction {
    /// Returns the table of the rows.
    pub(super) fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        table.text("Function", rows, |row| row.function.clone()).functions();
        table.text("Library", rows, |row| row.library.clone()).droppable(2);
        table.number("Self CPU %", rows, |row| row.self_percent().map(units::percent));
        table.number("Self CPU", rows, |row| some_time(row.self_time.cpu));
        table.number("Total CPU %", rows, |row| row.total_percent().map(units::percent)).droppable(3);
        table.number("Total CPU", rows, |row| some_time(row.total_time.cpu));
        table.number("Self waiting", rows, |row| some_time(row.self_time.waiting)).droppable(4);
        table.number("Samples", rows, |row| row.total_time.samples.to_string()).droppable(1);
        table.text("Spans", rows, |row| {
            let name =
                |(span, _): &(Option<String>, SampledTime)| span.clone().unwrap_or_else(|| OUTSIDE_SPANS.to_owned());
            let mut names: Vec<_> = row.spans.iter().take(Functions::SPANS).map(name).collect();
            if let more @ 1.. = row.spans.len().saturating_sub(Functions::SPANS) {
                names.push(format!("{more} more"));
            }
            names.join(", ")
        });
        table
    }
}

impl fmt::Display for SamplingTotals {
    /// Writes how many stacks were sampled, then a line for each problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, waits) = (self.time.samples, self.time.waits);
        let (hertz, all) = (self.hertz, samples + waits);
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        write!(f, "sampled {samples} stack{} on the CPU at {hertz} Hz", plural(samples))?;
        if waits > 0 {
            write!(f, " and {waits} wait{}", plural(waits))?;
        }
        if all > 0 {
            let percent = |count: u64| units::percent(100.0 * count as f64 / all as f64);
            write!(
                f,
                "; {} outside all spans, {} within 1 µs of a span's edge",
                self.outside_spans, self.time.at_edge
            )?;
            if self.pool > 0 {
                write!(f, "; {} of pools' threads in the span that waited for them", self.pool)?;
            }
            write!(f, "; {} of the stacks could not be followed to their root", percent(self.truncated))?;
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\nsampling of stacks: {problem}"))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Report,
        analysis::SampledLine,
        trace::sample::{SampledStack, add_stack, frame, gpu_trace, sample_stacks, stacks_trace},
    };

    #[test]
    fn lines_and_functions_are_part_of_the_report() {
        let report = Report::of([&stacks_trace()]);
        println!("{report}\n{}\n{}", report.lines(), report.functions());
        let text = report.to_string();
        for expected in [
            "* 60.0 %",
            "train::model::softmax",
            "src/model.rs:57",
            "sampled 131 stacks on the CPU at 1000000 Hz and 4 waits; 13 outside all spans",
            "2 within 1 µs of a span's edge",
            "2.2 % of the stacks could not be followed to their root",
            "sampling of stacks: waits of other processes were not sampled",
            "incomplete: 3 stack samples lost",
            "sampling fell behind: 3 stack samples lost; sample less often",
        ] {
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(expected), "{expected} in {text}");
        }
        let of_span = report.lines().in_span("train_step");
        assert_eq!(of_span.rows().len(), 2);
        assert!(of_span.to_string().contains('–'), "no shares of 4 samples: {of_span}");
        assert!(report.lines().in_span("nothing").is_empty() && !report.lines().is_empty());
        let own = |own| report.lines().own(own).in_span("forward").rows().len();
        assert_eq!((own(false), own(true)), (3, 2));
        assert_eq!(report.functions().limit(1).rows()[0].function, "train::grad::walk");
    }

    /// Has a training wait in a barrier of Candle, which is on the stack as a method of a trait.
    #[test]
    fn a_narrow_table_has_the_type_and_the_method_of_a_function() {
        let registry = "/home/me/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f";
        let main = frame("train::main", "src/training/loops/epoch.rs:142", "train");
        let guard = "<candle_core::utils::BarrierGuard as core::ops::drop::Drop>::drop";
        let place = format!("{registry}/candle-core-0.11.1/src/utils.rs:247");
        let (guard, place) = (frame(guard, &place, "train"), place);
        let matmul = frame("candle_core::tensor::Tensor::matmul", &place, "train");
        let mut trace = gpu_trace();
        sample_stacks(&mut trace, 99, 0, None);
        for micros in 0..60 {
            let stack = vec![&main, if micros % 2 == 0 { &guard } else { &matmul }];
            let sample = SampledStack { micros, nanos: 10_101_010, span: Some(1), stack, ..SampledStack::default() };
            add_stack(&mut trace, &sample);
        }
        let report = Report::of([&trace]);
        for (width, expected) in [(100, " BarrierGuard::drop "), (120, "<BarrierGuard as Drop>::drop ")] {
            let lines = report.lines().table().width(width).to_string();
            assert!(lines.contains(expected), "{lines}");
            for text in [lines, report.functions().table().width(width).to_string()] {
                assert!(text.contains("Tensor::matmul") && text.contains("50.0 %"), "{text}");
                assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            }
        }
        #[cfg(feature = "serde")]
        assert!(serde_json::to_string(&report).unwrap().contains("<candle_core::utils::BarrierGuard as core::ops"));
    }

    #[test]
    fn what_a_pool_did_for_a_span_is_apart_from_what_the_span_did() {
        let (main, kernel) = (frame("train::main", "src/main.rs:1", "train"), frame("gemm::kernel", "", "train"));
        let mut trace = gpu_trace();
        sample_stacks(&mut trace, 99, 0, None);
        for micros in 0..30 {
            let sample = SampledStack { micros, nanos: 10_000_000, span: Some(1), ..SampledStack::default() };
            add_stack(&mut trace, &SampledStack { stack: vec![&main], ..sample.clone() });
            add_stack(&mut trace, &SampledStack { stack: vec![&kernel], track: 1, pool: true, ..sample });
        }
        let report = Report::of([&trace]);
        let rows: Vec<_> = report.lines().in_span("forward").rows();
        let of = |row: &SampledLine| (row.function.clone(), row.pool, row.percent());
        let expected = [("train::main".to_owned(), false, Some(100.0)), ("gemm::kernel".to_owned(), true, Some(100.0))];
        let mut found: Vec<_> = rows.iter().map(of).collect();
        found.sort_by_key(|row| row.1);
        assert_eq!(found, expected);
        let text = report.to_string() + &report.lines().to_string() + &report.functions().to_string();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in
            ["forward (pool) in train gemm::kernel", "30 of pools' threads in the span that waited for them"]
        {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(text.matches("forward (pool)").count() >= 2, "{text}");
    }

    #[test]
    fn a_report_without_samples_is_as_before() {
        let report = Report::of([&gpu_trace()]);
        assert!(report.lines().is_empty() && report.functions().is_empty() && report.sampling().is_none());
        assert!(!report.to_string().contains("sampl"), "{report}");
        assert_eq!(report.lines().to_string(), "no stacks were sampled\n");
    }

    #[test]
    fn the_reason_why_nothing_was_sampled_is_printed() {
        let mut trace = gpu_trace();
        sample_stacks(&mut trace, 99, 0, Some("the kernel refuses: lower kernel.perf_event_paranoid to 2"));
        let text = Report::of([&trace]).to_string();
        assert!(text.contains("sampled 0 stacks on the CPU at 99 Hz\n"), "{text}");
        assert!(text.contains("lower kernel.perf_event_paranoid to 2"), "{text}");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn the_serialized_report_has_lines_only_if_stacks_were_sampled() {
        let json = |trace| serde_json::to_value(Report::of([&trace])).unwrap();
        let (with, without) = (json(stacks_trace()), json(gpu_trace()));
        assert_eq!(with["lines"].as_array().unwrap().len(), 10);
        assert_eq!(with["functions"][0]["function"], "train::grad::walk");
        assert_eq!((&with["sampling"]["lost"], &with["losses"]["stack_samples"]), (&3.into(), &3.into()));
        assert!(without.get("lines").is_none() && without.get("sampling").is_none());
    }
}
