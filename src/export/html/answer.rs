//! The top of a page: what a step takes, where the time goes, and what to change first.

use super::{packed::Names, parts::Contents, ranks::Ranks, steps::Breakdowns, timeline::Timelines};
use crate::{
    analysis::{Finding, FindingKind, Saving},
    export::json::{Array, Object},
    report::{Report, units},
};
use std::time::Duration;

/// Says what each part of a step is, in the order of [`Breakdowns::PARTS`].
const HELP: [&str; Breakdowns::PARTS.len()] = [
    "The GPU computes.",
    "The GPU exchanges data with other GPUs, and computes nothing meanwhile.",
    "The GPU copies or fills memory, and no kernel runs meanwhile.",
    "The GPU is idle, and the host loads data.",
    "The GPU is idle, and the host is in a call that waits for it.",
    "The GPU is idle, and the host is in a call that launches work.",
    "The GPU is idle, and the host is in a span, but in none of these calls.",
    "The GPU is idle, and the host is in no span.",
];

/// Returns the time of a step: that of the findings, which is the one that savings are a part of, or else the median.
fn step(report: &Report, findings: &[Finding]) -> Option<Duration> {
    findings.first().map(|finding| finding.step).or_else(|| report.steps().percentile(50.0))
}

/// Writes the headline: the time of a step and where it goes.
pub(super) fn write(
    report: &Report,
    (breakdowns, ranks): (&Breakdowns, &Ranks),
    contents: &Contents,
    names: &mut Names,
    section: &mut Object<'_>,
) {
    let (findings, total) = (report.findings(), breakdowns.total());
    match step(report, &findings) {
        Some(step) => section.number("step", step.as_nanos()),
        None => section.null("step"),
    }
    section.string("recorded", &units::time(report.recorded()));
    section.array("parts", |array| breakdowns.names().for_each(|part| array.string(part)));
    section.array("values", |array| total.means().iter().for_each(|part| array.number(part.as_nanos())));
    let has_gpu = breakdowns.iter().any(|(_, device, _)| device.is_some());
    let help = |line: &&str| if has_gpu { (*line).to_owned() } else { line.replace("The GPU is idle, and the", "The") };
    section.array("help", |array| HELP.iter().map(help).for_each(|line| array.string(&line)));
    contents.write(names, section);
    section.string("basis", &basis(breakdowns, ranks));
    section.array("figures", |figures| write_figures(report, ranks, figures));
    if let Some((text, is_problem)) = ranks.summary() {
        section.string("ranks", &text);
        section.bool("ranksDiffer", is_problem);
    }
}

/// Returns what the bar is made of.
fn basis(breakdowns: &Breakdowns, ranks: &Ranks) -> String {
    let total = breakdowns.total();
    let rows = breakdowns.iter().len();
    let of = match (rows, ranks.count()) {
        (0 | 1, _) => String::new(),
        (rows, ranks) if rows == ranks => format!(" of {ranks} ranks"),
        (rows, 2..) => format!(" of {rows} GPUs of {} ranks", ranks.count()),
        (rows, _) => format!(" of {rows} GPUs"),
    };
    let steps = if total.steps == 1 { "step" } else { "steps" };
    let slow = match breakdowns.slow() {
        0 => String::new(),
        1 => "; a very slow step is left out".to_owned(),
        slow => format!("; {slow} very slow steps are left out"),
    };
    format!("mean {} of {} recorded {steps}{of}{slow}", units::time(total.mean()), total.steps)
}

/// Writes other figures that people look for, each with the section that it is from.
fn write_figures(report: &Report, ranks: &Ranks, figures: &mut Array<'_>) {
    let mut figure = |text: String, section: &str| {
        figures.array(|cells| [text.as_str(), section].iter().for_each(|part| cells.string(part)));
    };
    for device in report.gpu_steps().devices() {
        let usage = &device.usage;
        let busy = units::percent(usage.busy_percent());
        // A GPU that waits for another rank is busy, too: the verdict would mislead.
        let verdict = if ranks.are_several() { String::new() } else { format!(": {}", usage.verdict) };
        figure(format!("GPU {} busy {busy}{verdict}", device.device), "gpu");
        if let Some((mfu, rate)) = usage.mfu().zip(usage.flops_per_second()) {
            figure(format!("MFU {} ({})", units::percent(mfu), units::flop_rate(rate)), "");
        }
        let a_step = usage.kernels as f64 / device.steps.max(1) as f64;
        figure(format!("{} kernels a step", units::rate(a_step)), "kernels");
    }
    for peak in report.memory().peaks() {
        figure(format!("{} of GPU {} in use at most", units::bytes(peak.in_use), peak.device), "memory");
    }
    let steps = report.steps();
    if let (Some(longest), 2..) = (steps.longest(), steps.count()) {
        figure(format!("{} steps recorded, the longest {}", steps.count(), units::time(longest)), "steps");
    }
}

/// Writes a finding. `row` is that of its span in the table of spans.
pub(super) fn write_finding(finding: &Finding, row: Option<usize>, timelines: &Timelines, item: &mut Object<'_>) {
    item.string("title", &finding.title);
    item.string("kind", finding.kind.as_str());
    item.array("saving", |array| write_saving(finding.saving, array));
    item.number("step", finding.step.as_nanos());
    item.float("percent", finding.percent());
    item.array("parts", |array| parts(finding.kind).iter().for_each(|&part| array.number(part)));
    item.array("path", |path| finding.path.iter().for_each(|name| path.string(name)));
    match &finding.location {
        Some(location) => item.string("location", location),
        None => item.null("location"),
    }
    item.array("evidence", |lines| finding.evidence.iter().for_each(|line| lines.string(line)));
    item.array("remedies", |remedies| {
        for remedy in &finding.remedies {
            remedies.object(|object| {
                object.string("change", &remedy.change);
                object.array("saving", |array| write_saving(remedy.saving, array));
            });
        }
    });
    match row {
        Some(row) => item.number("row", row),
        None => item.null("row"),
    }
    item.array("ranges", |ranges| {
        for range in finding.ranges.iter().take(5) {
            ranges.array(|cells| {
                match range.step {
                    Some(step) => cells.number(step),
                    None => cells.null(),
                }
                cells.number(range.offset.as_nanos());
                cells.number(range.duration().as_nanos());
                if let Some((window, start)) = timelines.find(range) {
                    cells.number(window);
                    cells.number(start);
                }
            });
        }
    });
}

fn write_saving(saving: Saving, array: &mut Array<'_>) {
    [saving.least, saving.likely, saving.most].iter().for_each(|time| array.number(time.as_nanos()));
}

/// Returns the parts of a step, see [`Breakdowns::PARTS`], that a kind of finding is about; none if it is about all.
fn parts(kind: FindingKind) -> &'static [u8] {
    match kind {
        FindingKind::InputBound => &[3],
        FindingKind::HostSync => &[4, 5, 6],
        FindingKind::LargeReadback | FindingKind::PageableCopy | FindingKind::TinyCopies => &[2, 4, 5],
        FindingKind::ExposedCopy | FindingKind::SameBytesAgain => &[2],
        FindingKind::LaunchBound | FindingKind::TensorByTensor => &[5, 6],
        FindingKind::HostWork | FindingKind::KernelLoading | FindingKind::HostWait => &[6, 7],
        FindingKind::BlockingAllocation => &[4, 6, 7],
        FindingKind::SmallGrid | FindingKind::NoTensorCores | FindingKind::LowClock | FindingKind::UnfusedChain => &[0],
        FindingKind::ExposedCollective | FindingKind::SlowRank => &[1],
        _ => &[],
    }
}
