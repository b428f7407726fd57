//! The check of times.

use super::{
    Found, Problem,
    thresholds::{Metric, Threshold, Thresholds},
};
use crate::{
    comparison::{Comparison, Estimate, Explanation, MoreData, Outcome, Presence, SpanChange, TimeChange},
    text,
};

/// The maximum number of reasons listed.
const REASONS: usize = 5;
/// The smallest fraction of the step's change that a reason explains. With five listed, smaller ones add nothing.
const REASON: f64 = 0.05;

/// The smallest fraction of a step by which it is noted to be longer, if that is allowed: what `kernspan diff` calls
/// worse by default.
const NOTABLE: f64 = 0.01;

pub(super) fn check(comparison: &Comparison, thresholds: &Thresholds) -> Found {
    let mut found = Found::default();
    if thresholds.ignore_times() {
        return found;
    }
    if comparison.before.steps == 0 || comparison.after.steps == 0 {
        found.unclear.push(not_compared("no whole step was recorded on one side"));
        return found;
    }
    if !comparison.are_times_comparable {
        found.unclear.push(not_compared("the machines differ"));
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

/// Reports that times are not compared.
fn not_compared(reason: &str) -> Problem {
    let text = format!("times are not compared: {reason}");
    Problem { metric: Metric::Step, path: Vec::new(), location: None, text, reasons: Vec::new() }
}

/// Checks whether everything takes longer.
fn drift(comparison: &Comparison, thresholds: &Thresholds, found: &mut Found) {
    let mut notable = Vec::new();
    for (drift, place) in [(&comparison.drift, "on the host"), (&comparison.gpu_drift, "on the GPU")] {
        let Estimate { value, low, .. } = drift.factor;
        if low > thresholds.of(Metric::Drift).limit(1.0, 1.0) {
            let (path, location, reasons) = (Vec::new(), None, Vec::new());
            let text = format!("everything takes {value:.2} times as long as before {place}");
            found.problems.push(Problem { metric: Metric::Drift, path, location, text, reasons });
        }
        if drift.is_notable() {
            notable.push(format!("{value:.2} times as long {place}"));
        }
    }
    if !notable.is_empty() {
        let in_turns = comparison.drift.in_turns;
        let why = if in_turns { "the build, or the load of the machine" } else { "the machine, or the build" };
        found.notes.push(format!("times are adjusted for drift: everything takes {}: {why}", notable.join(", ")));
    }
}

/// Checks the whole step. If it is not known to be worse but a span is, the span is more informative.
fn step(comparison: &Comparison, thresholds: &Thresholds, has_worse_span: bool, found: &mut Found) {
    let change = &comparison.step;
    let (before, after) = (change.before.value, change.after.value);
    let threshold = thresholds.of(Metric::Step).limit(0.0, before);
    let outcome = change.outcome(threshold);
    // A step that may be shorter by more than the threshold, but not longer, is not worse.
    let may_be_worse = change.change.high > threshold && !has_worse_span;
    let text = match outcome {
        Outcome::Worse if change.is_sure() => longer(change, before),
        Outcome::Worse => format!(
            "{} instead of {}, {:.1} times as long, which noise cannot explain",
            text::time(after),
            text::time(before),
            after / before
        ),
        Outcome::CannotTell(data) if may_be_worse => {
            format!("{}{}", text::longer(change, before), unclear(before, threshold, data))
        }
        _ => {
            let is_notable = change.is_sure() && change.change.value > NOTABLE * before;
            if is_notable && change.change.value <= threshold {
                let allowed = text::percent(threshold, before);
                found.notes.push(format!("the step: {}, where {allowed} is allowed", longer(change, before)));
            }
            return;
        }
    };
    let explanations = comparison.explanations();
    let is_reason = |it: &Explanation| it.change.value > REASON * change.change.value.abs();
    let problem = Problem {
        metric: Metric::Step,
        path: Vec::new(),
        location: None,
        text: format!("the step: {text}"),
        reasons: explanations.iter().filter(|it| is_reason(it)).take(REASONS).map(ToString::to_string).collect(),
    };
    if outcome == Outcome::Worse { found.problems.push(problem) } else { found.unclear.push(problem) }
}

/// Describes a time that is longer, and why that is certain if its interval does not say so.
fn longer(change: &TimeChange, whole: f64) -> String {
    let why = if change.is_apart() { ", in each run" } else { "" };
    format!("{}{why}", text::longer(change, whole))
}

/// Describes a change that may or may not be beyond the threshold.
fn unclear(whole: f64, threshold: f64, data: MoreData) -> String {
    format!(", where {} is allowed; needs {data} on each side", text::percent(threshold, whole))
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
        Outcome::Worse => (true, String::new()),
        Outcome::CannotTell(data) => (false, unclear(step, threshold, data)),
        _ => return None,
    };
    let on = if is_gpu { " on the GPU" } else { "" };
    let text = format!("{}{on}: {} of the step{needs}", span.path_text(), longer(change, step));
    let reasons = span.counts.iter().filter(|count| count.is_more()).map(ToString::to_string).collect();
    let problem = Problem { metric, path: span.path.clone(), location: span.location.clone(), text, reasons };
    Some((value, problem, is_worse))
}

/// Returns whether other spans are known to have become shorter by most of the time that this one gained, as when work
/// has moved, or when a new span encloses existing work. Most means more than half.
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
