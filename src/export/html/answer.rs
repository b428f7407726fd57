//! The top of a page: what a step takes, where the time goes, and what to change first.

use super::{packed::Names, parts::Contents, ranks::Ranks, timeline::Timelines};
use crate::{
    analysis::{Finding, FindingKind, Saving, StepPart},
    export::json::{Array, Object},
    report::{Report, units},
};

/// Writes the headline: the time of a step and where it goes.
pub(super) fn write(report: &Report, ranks: &Ranks, contents: &Contents, names: &mut Names, section: &mut Object<'_>) {
    let (step, parts) = (report.step_time(), report.step_parts().unwrap_or_default());
    match step {
        Some(step) => section.number("step", step.mean.as_nanos()),
        None => section.null("step"),
    }
    section.string("recorded", &units::time(report.recorded()));
    section.array("parts", |array| ranks.part_names().for_each(|part| array.string(part)));
    section.array("values", |array| {
        StepPart::ALL.iter().for_each(|part| array.number(parts.of(*part).as_nanos()));
    });
    let help = |part: &StepPart| match ranks.have_gpu() {
        true => part.help().to_owned(),
        false => part.help().replace("The GPU is idle, and the", "The"),
    };
    section.array("help", |array| StepPart::ALL.iter().for_each(|part| array.string(&help(part))));
    contents.write(names, section);
    section.string("basis", &basis(report, ranks));
    section.array("figures", |figures| write_figures(report, ranks, figures));
    if let Some((text, is_problem)) = ranks.summary() {
        section.string("ranks", &text);
        section.bool("ranksDiffer", is_problem);
    }
}

/// Returns what the headline is about.
fn basis(report: &Report, ranks: &Ranks) -> String {
    let Some(step) = report.step_time() else { return String::new() };
    let steps = if step.steps == 1 { "step" } else { "steps" };
    let of = if ranks.are_several() { " of the slowest rank" } else { "" };
    let mut basis = format!("mean of {} recorded {steps}{of}", step.steps);
    if step.host_runs_ahead() {
        basis += &format!("; the host takes {} of it and runs ahead of the GPU", units::time(step.host));
    }
    match step.outliers {
        0 => basis,
        1 => basis + "; 1 outlier is left out",
        outliers => basis + &format!("; {outliers} outliers are left out"),
    }
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
    item.array("parts", |array| parts(finding.kind).iter().for_each(|&part| array.number(part as u8)));
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

/// Returns the parts of a step that a kind of finding is about; none if it is about all.
fn parts(kind: FindingKind) -> &'static [StepPart] {
    use StepPart::{Communication, Compute, Copies, Host, Input, Launching, Other, Synchronizing};
    match kind {
        FindingKind::InputBound => &[Input],
        FindingKind::HostSync => &[Synchronizing, Launching, Host],
        FindingKind::LargeReadback | FindingKind::PageableCopy | FindingKind::TinyCopies => {
            &[Copies, Synchronizing, Launching]
        }
        FindingKind::ExposedCopy | FindingKind::SameBytesAgain => &[Copies],
        FindingKind::LaunchBound | FindingKind::TensorByTensor => &[Launching, Host],
        FindingKind::HostWork | FindingKind::KernelLoading | FindingKind::HostWait => &[Host, Other],
        FindingKind::BlockingAllocation => &[Synchronizing, Host, Other],
        FindingKind::SmallGrid | FindingKind::NoTensorCores | FindingKind::LowClock | FindingKind::UnfusedChain => {
            &[Compute]
        }
        FindingKind::ExposedCollective | FindingKind::SlowRank => &[Communication],
        _ => &[],
    }
}
