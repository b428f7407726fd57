//! The check of times.

use super::{
    Found,
    problem::Problem,
    thresholds::{Metric, Threshold, Thresholds},
};
use crate::report::comparison::{Comparison, Estimate, Explanation, Outcome, Presence, SpanChange, TimeChange, text};

/// The number of reasons that are listed.
const REASONS: usize = 5;

pub(super) fn check(comparison: &Comparison, thresholds: &Thresholds) -> Found {
    let mut found = Found::default();
    if !comparison.are_times_comparable || comparison.before.steps == 0 || comparison.after.steps == 0 {
        return found;
    }
    drift(comparison, thresholds, &mut found);
    let mut spans: Vec<(f64, Problem, bool)> = Vec::new();
    for span in &comparison.spans {
        spans.extend(of_span(comparison, span, Metric::Span, thresholds));
        spans.extend(of_span(comparison, span, Metric::Gpu, thresholds));
    }
    spans.sort_by(|a, b| b.0.total_cmp(&a.0));
    step(comparison, thresholds, spans.iter().any(|(.., is_worse)| *is_worse), &mut found);
    for (_, problem, is_worse) in spans {
        if is_worse { found.problems.push(problem) } else { found.unclear.push(problem) }
    }
    found
}

/// Checks whether everything takes longer.
fn drift(comparison: &Comparison, thresholds: &Thresholds, found: &mut Found) {
    for (drift, what) in [(&comparison.drift, ""), (&comparison.gpu_drift, " on the GPU")] {
        let Estimate { value, low, .. } = drift.factor;
        let text = format!("everything takes {value:.2} times as long as before{what}");
        if low > thresholds.of(Metric::Drift).limit(1.0, 1.0) {
            let (path, location, reasons) = (Vec::new(), None, Vec::new());
            found.problems.push(Problem { metric: Metric::Drift, path, location, text, reasons });
        } else if (value - 1.0).abs() > 0.05 {
            let why =
                if drift.in_turns { "the build, or the load of the machine" } else { "the machine, or the build" };
            found.notes.push(format!("{text}: {why}; taken out of the times of spans"));
        }
    }
}

/// Checks the whole step. If a span is known to be worse, that says more.
fn step(comparison: &Comparison, thresholds: &Thresholds, has_worse_span: bool, found: &mut Found) {
    let threshold = thresholds.of(Metric::Step).limit(0.0, comparison.step.before.value);
    let change = &comparison.step;
    let (is_worse, needs) = match change.outcome(threshold) {
        Outcome::Worse => (true, None),
        Outcome::CannotTell(data) if !has_worse_span => (false, Some(data)),
        _ => return,
    };
    let explanations = comparison.explanations();
    let is_reason = |it: &Explanation| it.change.value > 0.05 * change.change.value.abs();
    let mut problem = Problem {
        metric: Metric::Step,
        path: Vec::new(),
        location: None,
        text: format!("the step: {}", longer(change, change.before.value)),
        reasons: explanations.iter().filter(|it| is_reason(it)).take(REASONS).map(ToString::to_string).collect(),
    };
    match needs {
        Some(data) => {
            problem.text += &format!("; needs {data} on each side");
            found.unclear.push(problem);
        }
        None if is_worse => found.problems.push(problem),
        None => {}
    }
}

/// Checks a time of a span, if it may have changed by more than its threshold. Returns by how much, and whether it has.
fn of_span(
    comparison: &Comparison,
    span: &SpanChange,
    metric: Metric,
    thresholds: &Thresholds,
) -> Option<(f64, Problem, bool)> {
    let step = comparison.step.before.value;
    let is_gpu = metric == Metric::Gpu;
    let change = if is_gpu { &span.gpu } else { &span.host };
    let threshold = match thresholds.of_span(metric, &span.path) {
        Threshold::Off => return None,
        threshold => threshold.limit(0.0, step),
    };
    let value = change.change.value;
    if change.is_nothing() || value <= threshold {
        return None;
    }
    let (is_worse, needs) = match change.outcome(threshold) {
        Outcome::Worse if made_up_for(comparison, span, is_gpu, value) => return None,
        Outcome::Worse => (true, None),
        Outcome::CannotTell(data) => (false, Some(data)),
        _ => return None,
    };
    let on = if is_gpu { " on the GPU" } else { "" };
    let mut text = format!("{}{on}: {} of the step", span.path_text(), longer(change, step));
    if let Some(data) = needs {
        text += &format!("; needs {data} on each side");
    }
    let reasons = span.counts.iter().filter(|count| count.is_more()).map(ToString::to_string).collect();
    let problem = Problem { metric, path: span.path.clone(), location: span.location.clone(), text, reasons };
    Some((value, problem, is_worse))
}

/// Returns whether other spans are known to have become shorter by most of what this one is longer, as when work has
/// moved, or when a span is new around work that was there before.
fn made_up_for(comparison: &Comparison, span: &SpanChange, is_gpu: bool, value: f64) -> bool {
    let of = |it: &SpanChange| if is_gpu { it.gpu.change } else { it.host.change };
    let shorter = comparison.spans.iter().map(of).filter(|change| change.high < 0.0);
    let is_made_up = -shorter.map(|change| change.value).sum::<f64>() > value / 2.0;
    // The innermost span around it that both sides have.
    let is_around = |it: &&SpanChange| it.path.len() < span.path.len() && span.path.starts_with(&it.path);
    let around = comparison.spans.iter().filter(is_around).rfind(|it| it.presence == Presence::Both);
    let total = |it: &SpanChange| if is_gpu { it.total_gpu.change } else { it.total_host.change };
    let is_new = span.presence == Presence::Added;
    is_made_up || (is_new && around.is_some_and(|it| total(it).value < value / 2.0))
}

/// Returns a change as text, in percent of a time, with its interval.
fn longer(change: &TimeChange, whole: f64) -> String {
    let Estimate { value, low, high } = change.change;
    let percent = |nanos: f64| text::percent(nanos, whole);
    let (before, after) = (text::time(change.before.value), text::time(change.after.value));
    format!("{after} instead of {before}, {} ({} to {})", percent(value), percent(low), percent(high))
}
