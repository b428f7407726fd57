//! The command `advise`: what makes steps slow, and what a change would save.

use crate::{
    fault::{Fault, say},
    input::Inputs,
    json::json,
    output::{self, Section, Style},
};
use kernspan::{
    analysis::{Finding, Remedy},
    report::{Table, units},
};
use std::time::Duration;

/// Print what makes steps slow, what to change, and what that would save
///
/// Savings are simulated: the recorded steps are replayed without the cause, while everything that the host and the
/// streams wait for stays the same. Savings overlap, so two changes may save less than their sum. Without GPU activity,
/// only the rules about host spans apply.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kernspan advise runs/mnist
  kernspan advise -n 1 trace.pt.trace.json.gz
  kernspan advise --step-time 18.5ms trace.pt.trace.json.gz
  kernspan advise --json trace.json | jq '.findings[0].kind'

Exit status: 0 success, also if nothing was found; 1 a file could not be read; 2 usage error")]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Maximum number of findings [default: all]
    #[arg(long, short = 'n', value_name = "FINDINGS", value_parser = output::limit)]
    limit: Option<usize>,
    /// Duration of a step without a profiler, as a progress bar shows it, such as 18.5ms. Useful for traces of
    /// PyTorch's profiler, which makes steps longer and does not record by how much; kernspan's traces do
    #[arg(long, value_name = "TIME", value_parser = step_time)]
    step_time: Option<Duration>,
    #[command(flatten)]
    style: Style,
}

/// The fraction by which the step that findings are about may differ from the given one: it is found to 3 %.
const NEAR: f64 = 0.05;

/// Parses a time with its unit.
fn step_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0)];
    let of_unit = |(unit, seconds): (&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok().filter(|time| !time.is_zero())
    };
    units.into_iter().find_map(of_unit).ok_or_else(|| "expected a time, such as 18.5ms or 0.2s".to_owned())
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let mut read = self.inputs.read()?;
        self.step_time.into_iter().for_each(|time| read.set_unrecorded_step(time));
        let report = read.report();
        let is_used = |time: Duration| {
            let step = report.step_without_recording();
            step.is_some_and(|step| step.abs_diff(time).as_secs_f64() <= NEAR * time.as_secs_f64())
        };
        if let Some(time) = self.step_time.filter(|&time| !is_used(time)) {
            let time = units::time(time);
            let reason = match report.gpu_work() {
                0 => "no GPU activity was recorded, so steps take as long as they were recorded",
                _ => "no host speed explains a step that long",
            };
            say(&format!("--step-time {time} is not used: {reason}"));
        }
        let limit = self.limit.unwrap_or(usize::MAX);
        let advice = report.advice().limit(limit);
        let advice = match self.style.width {
            Some(columns) => advice.width(columns),
            None => advice.fit_terminal(),
        };
        let mut findings = report.findings();
        findings.truncate(limit);
        let is_text = self.style.is_text();
        self.style.print(&[Section {
            title: "Findings".to_owned(),
            key: "findings",
            table: (!is_text && !findings.is_empty()).then(|| table(&findings)),
            rows: findings.iter().map(json).collect(),
            members: vec![
                ("step_time", json(&report.step_time())),
                ("step_without_recording", json(&report.step_without_recording())),
            ],
            // Markdown gets the table, or the reason why there is none.
            below: if is_text || findings.is_empty() { advice.to_string() } else { String::new() },
            ..Section::default()
        }])?;
        read.end()
    }
}

/// The table of findings, for Markdown.
fn table(findings: &[Finding]) -> Table {
    let mut table = Table::default();
    table.text("Finding", findings, |finding| finding.title.clone());
    table.text("Kind", findings, |finding| finding.kind.to_string());
    table.number("Saves", findings, |finding| units::column_time(finding.saving.likely));
    table.number("Of a step", findings, |finding| units::percent(finding.percent()));
    table.text("To do", findings, to_do);
    table
}

/// Returns the change to make, or several alternatives with what each saves.
fn to_do(finding: &Finding) -> String {
    let change = |remedy: &Remedy| format!("{} (saves {})", remedy.change, units::time(remedy.saving.likely));
    match finding.remedies.as_slice() {
        several @ [_, _, ..] => several.iter().map(change).collect::<Vec<_>>().join(" Or: "),
        _ => finding.advice().to_owned(),
    }
}
