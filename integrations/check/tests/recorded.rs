//! Checks of windows that were recorded on a GPU, to which one launch, copy or allocation a step is added.

#![cfg(target_os = "linux")]

use kernspan::{
    Chrome, Exporter, Trace,
    analysis::Analysis,
    trace::{Allocation, Detail, MemoryChange, Step, Work},
};
use kernspan_check::{Baseline, CountKind, Metric, check};
use std::{fs, path::Path};

/// A recorded window, and the file that `Chrome` writes of it: one event a line.
struct Recorded {
    name: &'static str,
    trace: Trace,
    baseline: Baseline,
    file: String,
}

fn windows() -> impl Iterator<Item = Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gpu");
    ["burn-first", "burn", "calls", "candle", "training"].into_iter().map(move |name| {
        let trace = kernspan::replay(fs::File::open(folder.join(format!("{name}.kernspan"))).unwrap()).unwrap();
        let written = tempfile::tempdir().unwrap();
        let files = Chrome::to_dir(written.path()).export(&Analysis::of(&trace)).unwrap();
        let file = fs::read_to_string(&files[0]).unwrap();
        Recorded { name, baseline: Baseline::of([&trace]), trace, file }
    })
}

impl Recorded {
    /// Returns the lines of the file that begin so. There is one for each piece of work, or change of memory.
    fn lines(&self, start: &str) -> Vec<&str> {
        self.file.lines().filter(|line| line.starts_with(start)).collect()
    }

    /// Adds some lines once more, and returns whether a check finds more of this kind.
    fn is_found(&self, kind: CountKind, lines: &[&str]) -> bool {
        let again: String = lines.iter().map(|line| format!("{},\n", line.trim_end_matches(','))).collect();
        let file = self.file.replacen("\"traceEvents\":[\n", &format!("\"traceEvents\":[\n{again}"), 1);
        let after = kernspan::read::from_bytes(file.as_bytes()).unwrap();
        let check = check(&Baseline::of(&after), &self.baseline);
        check.problems.iter().any(|problem| problem.metric == Metric::Count(kind))
    }

    /// Adds, in each whole step, the first of these lines once more, then another one, and so on. `steps` has the step
    /// of each line. Returns the number of trials.
    fn try_all(&self, kind: CountKind, lines: &[&str], steps: &[Option<usize>]) -> usize {
        assert_eq!(lines.len(), steps.len(), "{}", self.name);
        let range = self.baseline.runs.first().map(|run| run.count(kind)).unwrap_or_default();
        // A count that varies from step to step is compared as a range.
        if !range.is_constant() {
            return 0;
        }
        let whole = (0..self.trace.steps().len()).filter(|&step| !self.trace.steps()[step].cut().any());
        let of_step = |step: usize| -> Vec<&str> {
            lines.iter().zip(steps).filter(|(_, of)| **of == Some(step)).map(|(line, _)| *line).collect()
        };
        let of_steps: Vec<_> = whole.map(of_step).collect();
        let least = of_steps.iter().map(Vec::len).min().unwrap_or(0);
        let mut tried = 0;
        for nth in (0..least).step_by((least / 4).max(1)) {
            let added: Vec<_> = of_steps.iter().map(|lines| lines[nth]).collect();
            assert!(self.is_found(kind, &added), "{}: {kind} {nth}", self.name);
            tried += 1;
        }
        tried
    }
}

#[test]
fn a_file_has_the_baseline_of_its_window() {
    for recorded in windows() {
        let read = kernspan::read::from_bytes(recorded.file.as_bytes()).unwrap();
        assert_eq!(Baseline::of(&read), recorded.baseline, "{}", recorded.name);
    }
}

#[test]
fn one_more_launch_or_copy_a_step_is_always_found() {
    let mut tried = 0;
    for recorded in windows() {
        for (kind, category) in [(CountKind::Kernels, "kernel"), (CountKind::Copies, "gpu_memcpy")] {
            let lines = recorded.lines(&format!("{{\"ph\":\"X\",\"cat\":\"{category}\""));
            let is_kind = |work: &Work<'_>| match work.detail() {
                Detail::Kernel(_) => kind == CountKind::Kernels,
                Detail::Copy(_) => kind == CountKind::Copies,
                _ => false,
            };
            let steps: Vec<_> = recorded.trace.work().filter(is_kind).map(|it| Some(it.step_id()?.index())).collect();
            tried += recorded.try_all(kind, &lines, &steps);
        }
    }
    assert!(tried >= 10, "{tried}");
}

#[test]
fn one_more_allocation_a_step_is_always_found() {
    let mut tried = 0;
    for recorded in windows() {
        let is_allocation = |line: &&str| !line.contains("\"Bytes\":-");
        let start = "{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"cpu_instant_event\",\"name\":\"[memory]\"";
        let lines: Vec<_> = recorded.lines(start).into_iter().filter(is_allocation).collect();
        let step = |allocation: Allocation<'_>| {
            let is_in = |step: &Step| step.start() <= allocation.at() && allocation.at() < step.end();
            recorded.trace.steps().iter().position(is_in)
        };
        let allocated = recorded.trace.allocations().filter(|it| it.change() == MemoryChange::Allocate);
        let steps: Vec<_> = allocated.map(step).collect();
        tried += recorded.try_all(CountKind::Allocations, &lines, &steps);
    }
    assert!(tried >= 4, "{tried}");
}
