//! The table of hardware counters.

use crate::{json::json, output::Section};
use kernspan::{Report, report::CountersBy};

/// The rows of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CounterRows {
    /// Spans by name, with those nested in them
    #[default]
    Span,
    /// Modules of the model
    Module,
    /// Kernels, copies and fills by name
    Kernel,
    /// Steps by number
    Step,
}

/// Returns the table of hardware counters.
pub(crate) fn section(report: &Report, by: CounterRows, limit: usize) -> Section {
    let (by, missing) = match by {
        CounterRows::Span => (CountersBy::Span, "no span has GPU work that was sampled"),
        CounterRows::Module => (CountersBy::Module, "no modules were recorded: no span has the field op.module"),
        CounterRows::Kernel => (CountersBy::Kernel, "no GPU work was sampled"),
        CounterRows::Step => (CountersBy::Step, "no step was sampled for at least half of its GPU time"),
    };
    let counters = report.counters().by(by).limit(limit);
    let rows = counters.rows();
    Section {
        title: "GPU counters".to_owned(),
        key: "counters",
        table: (!rows.is_empty()).then(|| counters.table()),
        empty: if counters.is_empty() { "no hardware counters were sampled" } else { missing },
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

/// Returns why counters were not sampled, or less than requested: a line for each reason.
pub(crate) fn problems(report: &Report) -> String {
    report.counters().problems().iter().map(|problem| format!("hardware counters: {problem}\n")).collect()
}
