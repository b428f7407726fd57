//! The first sections of a page: the run, its figures, and the findings.

use crate::{
    activity::Activity,
    analysis::Finding,
    export::{
        json::{Array, Object},
        utc::Utc,
    },
    report::{RecordingCost, Report, units},
    trace::{Gpu, Metadata, Timestamp},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// The facts of a run.
#[derive(Debug, Default)]
pub(super) struct RunFacts {
    pub(super) metadata: Option<Arc<Metadata>>,
    /// The start of the run, or else of the first window.
    pub(super) start: Option<Timestamp>,
    /// The schedule and the activities that were asked for, which traces do not have.
    pub(super) recorded: Option<(String, Vec<Activity>)>,
    /// The durations of steps that were not recorded, once the run has ended.
    pub(super) unrecorded: Arc<OnceLock<Vec<Duration>>>,
}

impl RunFacts {
    /// Returns the time when the run started, if it is known.
    pub(super) fn started(&self) -> Option<String> {
        let Utc { year, month, day, hour, minute, second } = self.start?.into();
        Some(format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC"))
    }
}

/// Writes the figures that people look for first.
pub(super) fn write_tiles(report: &Report, section: &mut Object<'_>) {
    section.array("items", |items| {
        let steps = report.steps();
        if let Some(median) = steps.percentile(50.0) {
            let longest = steps.longest().map_or_else(String::new, |time| format!(", longest {}", units::time(time)));
            tile(items, "median step", &units::time(median), &format!("{} recorded{longest}", steps.count()));
        }
        for device in report.gpu_steps().devices() {
            let usage = &device.usage;
            let busy = units::percent(usage.busy_percent());
            tile(items, &format!("GPU {} busy", device.device), &busy, &usage.verdict.to_string());
            if let Some((mfu, rate)) = usage.mfu().zip(usage.flops_per_second()) {
                let rate = format!("{}FLOP/s", units::rate(rate));
                tile(items, "MFU", &format!("{}%", units::digits(mfu)), &rate);
            }
            let a_step = usage.kernels as f64 / device.steps.max(1) as f64;
            tile(items, "kernels a step", &units::rate(a_step), &format!("{} recorded", usage.kernels));
        }
        for peak in report.memory().peaks() {
            let note = format!("of GPU {}, window {}", peak.device, peak.window);
            tile(items, "memory peak", &units::bytes(peak.in_use), &note);
        }
        if let Some(first) = report.findings().first() {
            tile(items, "first finding saves", &units::percent(first.percent()), &first.title);
        }
        if report.steps().is_empty() {
            tile(items, "recorded", &units::time(report.recorded()), "no whole step was recorded");
        }
    });
}

fn tile(items: &mut Array<'_>, label: &str, text: &str, note: &str) {
    items.array(|tile| [label, text, note].iter().for_each(|part| tile.string(part)));
}

/// Writes what is known of the run, and the report's own lines below. `name` is the one that was given to the run.
pub(super) fn write_facts(name: Option<&str>, run: &RunFacts, report: &Report, section: &mut Object<'_>) {
    let metadata = run.metadata.as_deref();
    section.array("items", |items| {
        let mut fact = |label: &str, text: &str| {
            items.array(|fact| [label, text].iter().for_each(|part| fact.string(part)));
        };
        name.iter().for_each(|name| fact("name", name));
        if let Some(metadata) = metadata {
            let process = Some(&metadata.process).filter(|name| !name.is_empty());
            fact("program", &format!("{} (process {})", process.map_or("unknown", String::as_str), metadata.pid));
            if !metadata.host.is_empty() {
                fact("host", &metadata.host);
            }
            if metadata.world_size > 1 {
                fact("rank", &format!("{} of {}", metadata.rank, metadata.world_size));
            }
        }
        if let Some(started) = run.started() {
            fact("started", &started);
        }
        if let Some((schedule, activities)) = &run.recorded {
            fact("schedule", schedule);
            // Without a GPU only the host was recorded, whatever was asked for.
            let is_recorded = |activity: &Activity| *activity == Activity::Host || report.gpu().is_available();
            let activities: Vec<_> = activities.iter().copied().filter(is_recorded).collect();
            fact("recorded", &activities.iter().map(|activity| format!("{activity:?}")).collect::<Vec<_>>().join(", "));
        }
        for device in report.devices() {
            let memory = units::bytes(device.memory);
            fact(&format!("GPU {}", device.id), &format!("{}, {memory}", device.name));
        }
        match report.gpu() {
            Gpu::Available(library) => {
                let (cupti, cuda) = (library.cupti_version, library.driver_version);
                fact("CUPTI", &format!("{cupti}, driver for CUDA {}.{}", cuda / 1000, cuda % 1000 / 10));
            }
            state => fact("GPUs", &state.to_string()),
        }
        fact("kernspan", env!("CARGO_PKG_VERSION"));
        for (key, value) in metadata.iter().flat_map(|metadata| &metadata.user) {
            fact(key, value);
        }
    });
    section.array("notes", |notes| {
        let unrecorded = run.unrecorded.get().cloned().unwrap_or_default();
        if let Some(cost) = RecordingCost::of(&unrecorded.into(), report.steps()) {
            notes.string(&cost.to_string());
        }
        // The findings have a section of their own.
        let lines = report.width(usize::MAX).summary();
        let lines = lines.lines().take_while(|line| *line != "what to change first:");
        lines.for_each(|line| notes.string(line));
    });
}

/// Writes a finding. `row` is that of its span in the table of spans.
pub(super) fn write_finding(finding: &Finding, row: Option<usize>, item: &mut Object<'_>) {
    item.string("title", &finding.title);
    item.string("kind", finding.kind.as_str());
    item.number("saves", finding.saving.likely.as_nanos());
    item.number("least", finding.saving.least.as_nanos());
    item.number("most", finding.saving.most.as_nanos());
    item.number("step", finding.step.as_nanos());
    item.float("percent", finding.percent());
    item.array("path", |path| finding.path.iter().for_each(|name| path.string(name)));
    match &finding.location {
        Some(location) => item.string("location", location),
        None => item.null("location"),
    }
    item.array("evidence", |lines| finding.evidence.iter().for_each(|line| lines.string(line)));
    item.string("advice", finding.advice());
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
            });
        }
    });
}
