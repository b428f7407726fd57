//! Check results for GitHub: a Markdown comment, a job summary, and annotations.

use crate::{fault::Fault, file::cannot_write};
use kernspan_check::{
    Check, Comparison, Problem,
    comparison::{SpanChange, TimeChange},
    text::time,
};
use std::{env, fs, io::Write};

/// The most spans in the table of a comment.
const SPANS: usize = 20;

/// Returns the comment.
pub(crate) fn markdown(check: &Check) -> String {
    let comparison = &check.comparison;
    let mut text = format!("## kernspan: {}\n\n", check.verdict());
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
    let mut row = |name: &str, it: &TimeChange| {
        let [before, after] = [it.before.value, it.adjusted_after()].map(time);
        text += &format!("| {} | {before} | {after} | {} |\n", escape(name).replace('|', "\\|"), change(it));
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
        text += "\nTimes are of a step: self times of spans, adjusted for drift. Changes are in percent of the step, \
                 with an interval of 99 %.\n";
    }
    text
}

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Escapes Markdown, except in code spans, which need no escaping.
fn escape(text: &str) -> String {
    let plain = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('<', "&lt;");
        text.replace('*', "\\*").replace('_', "\\_")
    };
    let mut parts = text.split('`');
    let mut escaped = plain(parts.next().unwrap_or_default());
    while let Some(code) = parts.next() {
        match parts.next() {
            Some(rest) => escaped += &format!("`{code}`{}", plain(rest)),
            // An unpaired backtick does not begin a code span.
            None => escaped += &format!("\\`{}", plain(code)),
        }
    }
    escaped
}

/// Adds the comment to the job summary, if this is a job.
pub(crate) fn add_to_summary(comment: &str) -> Result<(), Fault> {
    let Some(path) = env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()) else { return Ok(()) };
    let fault = |error| cannot_write(path.as_ref(), &error);
    let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).map_err(fault)?;
    file.write_all(comment.as_bytes()).map_err(fault)
}

/// Returns an annotation line for each problem, and for inconclusive results if they count as failures.
pub(crate) fn annotations(check: &Check, fails_if_inconclusive: bool) -> String {
    let unclear = check.unclear.iter().filter(|_| fails_if_inconclusive);
    check.problems.iter().map(annotation).chain(unclear.map(annotation)).collect()
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

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn nothing_is_escaped_in_code_spans() {
        assert_eq!(escape("train_step: `layer_norm<f32>` runs `a*b`"), "train\\_step: `layer_norm<f32>` runs `a*b`");
        assert_eq!(escape("a `b_c"), "a \\`b\\_c");
        assert_eq!(escape("vec<T>*"), "vec&lt;T>\\*");
    }
}
