//! The result of a check for GitHub: a comment in Markdown, the summary of a job, and annotations.

use crate::{fault::Fault, file::cannot_write};
use kernspan::report::{Check, Comparison, Problem, SpanChange, TimeChange, units};
use std::{env, fs, io::Write, time::Duration};

/// The most spans in the table of a comment.
const SPANS: usize = 20;

/// Returns the comment.
pub(crate) fn markdown(check: &Check) -> String {
    let comparison = &check.comparison;
    let verdict = if check.is_ok() { "not worse than the baseline" } else { "worse than the baseline" };
    let mut text = format!("## kernspan: {verdict}\n\n");
    let (before, after) = (&comparison.before, &comparison.after);
    text += &format!(
        "{} of {}, compared with {} of {}.\n\n",
        plural(after.runs, "run"),
        plural(after.steps, "step"),
        plural(before.runs, "run"),
        plural(before.steps, "step")
    );
    text += &list("Worse", check.problems.iter().map(item));
    text += &list("Cannot tell", check.unclear.iter().map(item));
    text += &list("Notes", check.notes.iter().map(|note| format!("- {}\n", escape(note))));
    text + &table(comparison)
}

fn list(title: &str, items: impl Iterator<Item = String>) -> String {
    let items: String = items.collect();
    if items.is_empty() { String::new() } else { format!("### {title}\n\n{items}\n") }
}

fn item(problem: &Problem) -> String {
    let place = problem.location.as_ref().map(|location| format!(" (`{location}`)")).unwrap_or_default();
    let reasons: String = problem.reasons.iter().map(|reason| format!("  - {}\n", escape(reason))).collect();
    format!("- {}{place}\n{reasons}", escape(&problem.text))
}

/// Returns the step and the spans that have changed the most.
fn table(comparison: &Comparison) -> String {
    let mut text = "| | before | after | change |\n|:---|---:|---:|---:|\n".to_owned();
    let change = |time: &TimeChange| {
        let percent = |nanos: f64| format!("{:+.1}", comparison.percent_of_step(nanos));
        let change = time.change;
        format!("{} % ({} to {})", percent(change.value), percent(change.low), percent(change.high))
    };
    let mut row = |name: &str, time: &TimeChange| {
        let [before, after] = [time.before.value, time.after.value].map(|nanos| units::time(duration(nanos)));
        text += &format!("| {} | {before} | {after} | {} |\n", escape(name), change(time));
    };
    row("step", &comparison.step);
    let times = |span: &SpanChange| [(span.path_text(), span.host), (format!("{} (GPU)", span.path_text()), span.gpu)];
    let mut spans: Vec<_> = comparison.spans.iter().flat_map(times).filter(|(_, time)| !time.is_nothing()).collect();
    spans.sort_by(|(_, a), (_, b)| b.change.value.abs().total_cmp(&a.change.value.abs()));
    spans.iter().take(SPANS).for_each(|(name, time)| row(name, time));
    if spans.len() > SPANS {
        text += &format!("\n{} more\n", plural((spans.len() - SPANS) as u64, "row"));
    }
    if comparison.are_times_comparable {
        text += "\nTimes are of a step, those of spans without spans in them. Changes are in percent of the step, with \
                 an interval of 99 %, without what all spans have in common.\n";
    }
    text
}

fn duration(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.max(0.0) as u64)
}

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_")
}

/// Adds the comment to the summary of the job, if this is one.
pub(crate) fn add_to_summary(comment: &str) -> Result<(), Fault> {
    let Some(path) = env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()) else { return Ok(()) };
    let fault = |error| cannot_write(path.as_ref(), &error);
    let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).map_err(fault)?;
    file.write_all(comment.as_bytes()).map_err(fault)
}

/// Returns an annotation for each problem, a line each.
pub(crate) fn annotations(check: &Check) -> String {
    check.problems.iter().map(annotation).collect()
}

/// Returns a workflow command: `::error file=src/model.rs,line=7::text`.
fn annotation(problem: &Problem) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let place = problem.location.as_ref().and_then(|location| location.rsplit_once(':'));
    let place =
        place.map_or_else(String::new, |(file, line)| format!(" file={},line={}", property(file), property(line)));
    format!("::error{place}::{}\n", data(&problem.text))
}
