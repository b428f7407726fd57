//! The page: what is kept of each window, and the document that is made of it.

use super::{
    breakdown::Breakdowns,
    cell::Grid,
    document::HtmlDocument,
    names::{Names, shortened_path},
    overview::{self, RunFacts},
    paths::Paths,
    spans::SpanTree,
    steps::StepSeries,
    tables,
    timeline::Timeline,
    window::WindowCharts,
};
use crate::{
    export::{
        json::{Array, Json, Object},
        step_exporter::{Run, StepSummary},
    },
    report::{Report, StepTimes, units},
    trace::{Device, Step, Trace},
};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// The report of a run as one HTML page, for traces that were kept or read. `Display` writes the page.
///
/// A profiler writes it by itself with the exporter [`Html`](super::Html), which also knows the steps that were not
/// recorded.
///
/// ```
/// use kernspan::export::{Collected, HtmlReport};
/// use tracing_subscriber::prelude::*;
///
/// let collected = Collected::new();
/// let (layer, profiler) = kernspan::Profiler::builder().export(collected.clone()).build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     tracing::info_span!("<forward>").in_scope(|| ());
/// });
/// profiler.finish()?;
///
/// let page = HtmlReport::of([&*collected.only()]).to_string();
/// assert!(page.starts_with("<!doctype html>") && !page.contains("<forward>"));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct HtmlReport {
    /// The name of the run, if it was given.
    name: Option<String>,
    report: Report,
    run: RunFacts,
    ranks: BTreeSet<u32>,
    names: Names,
    /// All steps that were ended, if the page is of a running program.
    steps: StepSeries,
    /// The recorded steps, if it is not.
    recorded: StepSeries,
    /// The first and the last step of each window.
    windows: Vec<(u64, u64, u32)>,
    breakdowns: Breakdowns,
    charts: Vec<WindowCharts>,
    /// The number of windows without charts because there are too many.
    more_charts: u64,
    paths: Paths,
    timelines: Vec<Timeline>,
}

impl HtmlReport {
    /// The number of windows with charts of how busy GPUs were.
    const CHARTS: usize = 8;
    /// The number of windows that are marked in the chart of steps.
    const WINDOWS: usize = 2_000;
    /// The number of steps with a timeline, beside the slowest.
    const TIMELINES: usize = 3;

    /// Returns the page of these windows, which may be those of several ranks.
    pub fn of<'a>(windows: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut page = Self::default();
        windows.into_iter().for_each(|window| page.add(window));
        page
    }

    /// Names the run in the title and the heading of the page, for example after its file. By default, it is the name
    /// of the program, and the time when the run started.
    ///
    /// ```
    /// use kernspan::export::HtmlReport;
    ///
    /// let page = HtmlReport::default().named("transformer.pt.trace.json.gz").to_string();
    /// assert!(page.contains("<title>transformer.pt.trace.json.gz – kernspan</title>"));
    /// ```
    #[must_use = "the name is that of the page that is returned"]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a window.
    pub fn add(&mut self, trace: &Trace) {
        self.report.add_trace(trace);
        self.run.metadata.get_or_insert_with(|| Arc::clone(&trace.metadata));
        self.run.start = Some(self.run.start.map_or(trace.start(), |start| start.min(trace.start())));
        self.ranks.insert(trace.metadata().rank);
        if let ([first, ..], [.., last], true) = (trace.steps(), trace.steps(), self.windows.len() < Self::WINDOWS) {
            self.windows.push((first.number(), last.number(), trace.window()));
        }
        for step in whole_steps(trace) {
            self.recorded.add(step.number(), step.duration());
        }
        self.breakdowns.add(trace);
        match WindowCharts::of(trace) {
            Some(_) if self.charts.len() >= Self::CHARTS => self.more_charts += 1,
            charts => self.charts.extend(charts),
        }
        self.paths.add(trace, &mut self.names);
        self.add_timelines(trace);
    }

    /// Adds a step that was ended, recorded or not.
    pub(super) fn add_step(&mut self, step: &StepSummary) {
        self.steps.add(step.number, step.duration);
    }

    /// Sets the facts of the run.
    pub(super) fn set_run(&mut self, run: &Run) {
        self.run.recorded = Some((run.schedule.clone(), run.activities.clone()));
        self.run.start = Some(run.start);
        self.run.unrecorded = Arc::clone(&run.unrecorded);
        self.run.metadata = Some(Arc::clone(&run.metadata));
    }

    /// Keeps the timeline of the step that the first finding shows, or else of a typical step; and of the slowest step.
    fn add_timelines(&mut self, trace: &Trace) {
        let mut steps: Vec<_> = whole_steps(trace).collect();
        steps.sort_by_key(|step| step.duration());
        let findings = self.report.findings();
        let mut numbers = findings.iter().flat_map(|finding| &finding.ranges).filter_map(|range| range.step);
        let shown = numbers.find_map(|number| steps.iter().find(|step| step.number() == number));
        let typical = shown.or_else(|| steps.get((steps.len().max(1) - 1) / 2));
        let is_kept = |step: &Step, kept: &[Timeline]| kept.iter().any(|kept| kept.step == step.number());
        if let Some(typical) = typical.filter(|step| !is_kept(step, &self.timelines))
            && self.timelines.len() < Self::TIMELINES
        {
            self.timelines.push(Timeline::of(trace, typical, &mut self.names));
        }
        let Some(slowest) = steps.last().filter(|step| !is_kept(step, &self.timelines)) else { return };
        let longest = self.timelines.iter().map(|kept| kept.duration).max().unwrap_or_default();
        if slowest.duration() > longest.mul_f64(1.5) {
            self.timelines.truncate(Self::TIMELINES);
            self.timelines.push(Timeline::of(trace, slowest, &mut self.names));
        }
    }

    fn title(&self) -> String {
        let process = self.run.metadata.as_ref().map(|metadata| metadata.process.clone());
        let process = process.filter(|name| !name.is_empty()).into_iter();
        let of_run = || process.chain(self.run.started()).collect::<Vec<_>>().join(", ");
        match self.name.clone().unwrap_or_else(of_run) {
            name if name.is_empty() => "kernspan".to_owned(),
            name => format!("{name} – kernspan"),
        }
    }

    /// Returns the document as JSON.
    fn json(&self) -> Json {
        let (tree, mut json) = (SpanTree::of(&self.report), Json::default());
        // Names that only tables have are added to a copy.
        let mut names = self.names.clone();
        json.object(|document| {
            document.number("format", 1);
            document.string("title", &self.title());
            document.string("made", concat!("Made by kernspan ", env!("CARGO_PKG_VERSION"), "."));
            document.array_of_lines("sections", |sections| {
                self.write_overview(sections);
                self.write_findings(sections, &tree);
                self.write_tables(sections, &tree, &mut names);
                self.write_charts(sections, &mut names);
                self.write_flames(sections);
                if self.ranks.len() > 1 {
                    table(sections, "ranks", "Ranks", &tables::ranks(&self.breakdowns, &mut names));
                }
            });
            document.array_of_lines("names", |array| names.write(array));
            let completeness = self.report.completeness();
            if completeness.dropped_share() > 0.0 {
                let summary = completeness.warning().unwrap_or_else(|| completeness.to_string());
                let causes = completeness.causes().map(|loss| loss.to_string());
                document.array("losses", |array| {
                    [summary].into_iter().chain(causes).for_each(|line| array.string(&line));
                });
            }
        });
        json
    }

    fn write_overview(&self, sections: &mut Array<'_>) {
        section(sections, "overview", "Overview", "tiles", |section| overview::write_tiles(&self.report, section));
        section(sections, "run", "Run", "facts", |section| {
            overview::write_facts(self.name.as_deref(), &self.run, &self.report, section);
        });
        let steps = if self.steps.is_empty() { &self.recorded } else { &self.steps };
        if !steps.is_empty() {
            section(sections, "steps", "Steps", "steps", |section| {
                let note = match self.steps.is_empty() {
                    true => "steps that were not recorded are not in traces".to_owned(),
                    false => format!("{} steps in all; windows that were recorded are shaded", self.steps.count()),
                };
                section.string("note", &format!("{}; {note}.", self.report.steps()));
                steps.write(section);
                section.array("windows", |array| {
                    for (first, last, window) in &self.windows {
                        array.array(|range| {
                            [*first, *last, u64::from(*window)].into_iter().for_each(|it| range.number(it));
                        });
                    }
                });
                let median = self.report.steps().percentile(50.0).unwrap_or_default();
                section.number("median", median.as_nanos());
                section.float("slow", StepTimes::SLOW);
            });
        }
        if !self.breakdowns.is_empty() {
            section(sections, "breakdown", "Where the time went", "bars", |section| {
                self.breakdowns.write(section, self.ranks.len() > 1);
            });
        }
        if !self.charts.is_empty() {
            section(sections, "gpu", "GPU over time", "series", |section| {
                if let more @ 1.. = self.more_charts {
                    section.string("note", &format!("{more} more windows have no chart."));
                }
                section.array("charts", |array| self.charts.iter().for_each(|charts| charts.write_busy(array)));
            });
        }
    }

    fn write_findings(&self, sections: &mut Array<'_>, tree: &SpanTree) {
        let findings = self.report.findings();
        if findings.is_empty() {
            return section(sections, "findings", "Findings", "empty", |section| {
                section.string("note", &self.report.advice().width(usize::MAX).to_string());
            });
        }
        section(sections, "findings", "Findings", "findings", |section| {
            section.array_of_lines("items", |items| {
                for finding in &findings {
                    items.object(|item| overview::write_finding(finding, tree.row(&finding.path), item));
                }
            });
        });
    }

    fn write_tables(&self, sections: &mut Array<'_>, tree: &SpanTree, names: &mut Names) {
        if !tree.is_empty() {
            table(sections, "spans", "Spans", &tree.table(&self.paths, names));
        }
        let kernels = tables::kernels(&self.report, names);
        kernels.iter().for_each(|grid| table(sections, "kernels", "Kernels", grid));
        let operations = tables::operations(&self.report, names);
        operations.iter().for_each(|grid| table(sections, "operations", "Operations", grid));
    }

    fn write_charts(&self, sections: &mut Array<'_>, names: &mut Names) {
        self.write_roofline(sections, names);
        if self.charts.iter().any(WindowCharts::has_memory) {
            section(sections, "memory", "Memory over time", "series", |section| {
                section.string("note", "By the span that allocated it, at the highest moment of each point.");
                section.array("charts", |array| self.charts.iter().for_each(|charts| charts.write_memory(array)));
            });
        }
        for peak in self.report.memory().peaks() {
            let id = format!("peak-of-{}", peak.device);
            section(sections, &id, &format!("Peak of GPU {}", peak.device), "table", |section| {
                let (bytes, after) = (units::bytes(peak.in_use), units::time(peak.after));
                section.string("note", &format!("{bytes} in use, {after} after window {} opened.", peak.window));
                tables::owners(peak, names).write(section);
            });
        }
    }

    fn write_roofline(&self, sections: &mut Array<'_>, names: &mut Names) {
        let points = self.paths.roofline();
        let Some(device) = self.report.devices().first().filter(|_| !points.is_empty()) else { return };
        let Some(bandwidth) = Device::memory_bytes_per_second(device) else { return };
        section(sections, "roofline", "Roofline", "roofline", |section| {
            section.number("bandwidth", bandwidth);
            section.array("roofs", |roofs| {
                for dtype in ["f32", "tf32", "bf16"] {
                    if let Some(peak) = device.peak_flops(dtype) {
                        roofs.array(|roof| {
                            roof.string(dtype);
                            roof.float(peak);
                        });
                    }
                }
            });
            section.array_of_lines("points", |array| {
                for point in points.iter().take(500) {
                    array.array(|cells| {
                        let path = shortened_path(self.paths.names(point.node).map(|name| names.get(name)));
                        cells.number(names.index(&path));
                        cells.float(point.intensity);
                        cells.float(point.flops_per_second);
                        cells.number(point.gpu.as_nanos());
                        cells.float(point.percent);
                    });
                }
            });
        });
    }

    fn write_flames(&self, sections: &mut Array<'_>) {
        if self.paths.has_host() {
            section(sections, "host-flame", "Host flame graph", "flame", |section| self.paths.write_host(section));
        }
        if self.paths.has_gpu() {
            section(sections, "gpu-flame", "GPU flame graph", "flame", |section| self.paths.write_gpu(section));
        }
        if !self.timelines.is_empty() {
            section(sections, "timeline", "Timeline", "timeline", |section| {
                section.array_of_lines("steps", |array| {
                    self.timelines.iter().for_each(|timeline| array.object(|object| timeline.write(object)));
                });
            });
        }
    }
}

fn whole_steps(trace: &Trace) -> impl Iterator<Item = &Step> {
    trace.steps().iter().filter(|step| !step.cut().any())
}

fn section(sections: &mut Array<'_>, id: &str, title: &str, kind: &str, write: impl FnOnce(&mut Object<'_>)) {
    sections.object(|section| {
        section.string("id", id);
        section.string("title", title);
        section.string("kind", kind);
        write(section);
    });
}

fn table(sections: &mut Array<'_>, id: &str, title: &str, grid: &Grid) {
    section(sections, id, title, "table", |section| grid.write(section));
}

impl fmt::Display for HtmlReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = self.json();
        let json = String::from_utf8_lossy(json.as_bytes());
        HtmlDocument::new(&self.title(), &json, &self.report.width(Report::WIDTH).to_string()).fmt(f)
    }
}
