//! The page: what is kept of each window, and the document built from it.

use super::{
    answer,
    cell::Grid,
    document::HtmlDocument,
    facts::{self, RunFacts},
    packed::Names,
    parts::Contents,
    paths::Paths,
    ranks::Ranks,
    roofline::Roofline,
    steps::StepSeries,
    tables::{self, SpanTree},
    timeline::Timelines,
    window::{self, WindowCharts},
};
use crate::{
    analysis::{Analysis, MemorySeries},
    export::{
        exporter::{Run, StepSummary},
        json::{Array, Json, Object},
    },
    report::{Leaks, Report, units},
    trace::{StepId, Trace},
};
use std::{fmt, sync::Arc};

/// The report of a run as one HTML page, for traces kept in memory or read from files. `Display` writes the page.
///
/// With the exporter [`Html`](super::Html), a profiler writes it by itself, including the steps that were not recorded.
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
    /// The name of the run, if given.
    name: Option<String>,
    report: Report,
    run: RunFacts,
    names: Names,
    /// All steps that were ended, if the page is of a running program.
    steps: StepSeries,
    /// The recorded steps, if it is not.
    recorded: StepSeries,
    /// The first and the last step of each window.
    windows: Vec<(u64, u64, u32)>,
    contents: Contents,
    charts: Vec<WindowCharts>,
    /// The number of windows without charts because there are too many.
    more_charts: u64,
    paths: Paths,
    timelines: Timelines,
}

impl HtmlReport {
    /// The number of windows with charts of how busy GPUs were.
    const CHARTS: usize = 8;
    /// The number of windows that are marked in the chart of steps.
    const WINDOWS: usize = 2_000;
    /// The number of findings whose moments are in the timeline in full.
    const DETAILED: usize = 8;

    /// Returns the page of these windows, which may be those of several ranks.
    pub fn of<'a>(windows: impl IntoIterator<Item = &'a Trace>) -> Self {
        let (mut page, windows) = (Self::default(), windows.into_iter());
        page.timelines.expect(windows.size_hint().0);
        windows.for_each(|window| page.add(&Analysis::of(window)));
        page
    }

    /// Names the run in the title and the heading of the page, for example after its file. By default, it is the name
    /// of the program, and the time the run started.
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
    pub fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        self.report.add(window);
        self.run.metadata.get_or_insert_with(|| Arc::clone(&trace.metadata));
        self.run.start = Some(self.run.start.map_or(trace.start(), |start| start.min(trace.start())));
        if let ([first, ..], [.., last], true) = (trace.steps(), trace.steps(), self.windows.len() < Self::WINDOWS) {
            self.windows.push((first.number(), last.number(), trace.window()));
        }
        window.step_intervals().iter().for_each(|step| self.recorded.add(step.step, step.time()));
        self.contents.add(window, &mut self.names);
        match WindowCharts::of(window) {
            Some(_) if self.charts.len() >= Self::CHARTS => self.more_charts += 1,
            charts => self.charts.extend(charts),
        }
        self.paths.add(window, &mut self.names);
        self.add_timeline(trace);
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
        self.run.followed = Arc::clone(&run.followed);
        self.run.metadata = Some(Arc::clone(&run.metadata));
        #[cfg(feature = "serving")]
        self.run.requests.clone_from(&run.requests);
    }

    /// Adds what was followed over the run, which has ended, and its requests.
    pub(super) fn end_run(&mut self) {
        #[cfg(feature = "serving")]
        self.report.set_requests(self.run.requests.as_ref().map(|recorder| recorder.requests()).unwrap_or_default());
        self.report.add_followed(self.run.followed.get().cloned().unwrap_or_default());
    }

    /// Adds the timeline of a window. The steps shown by findings, a typical step and the slowest are kept in full.
    fn add_timeline(&mut self, trace: &Trace) {
        let mut steps: Vec<_> = (0..trace.steps().len()).filter(|&step| !trace.steps()[step].cut().any()).collect();
        steps.sort_by_key(|&step| trace.steps()[step].duration());
        let findings = self.report.findings();
        let ranges = findings.iter().take(Self::DETAILED).filter_map(|finding| finding.ranges.first());
        let shown = ranges.filter_map(|range| trace.step_at(range.start));
        let typical = [steps.get(steps.len().saturating_sub(1) / 2), steps.last()];
        let mut detailed: Vec<StepId> =
            typical.into_iter().flatten().map(|&step| StepId::new(step)).chain(shown).collect();
        detailed.sort_unstable();
        detailed.dedup();
        self.timelines.add(trace, &detailed, &mut self.names);
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
        // Names that only tables use are added to a copy.
        let mut names = self.names.clone();
        json.object(|document| {
            document.number("format", 1);
            document.string("title", &self.title());
            document.string("made", concat!("Made by kernspan ", env!("CARGO_PKG_VERSION"), "."));
            document.array_of_lines("sections", |sections| {
                let ranks = Ranks::of(&self.report);
                section(sections, "answer", "Step", "answer", |section| {
                    answer::write(&self.report, &ranks, &self.contents, &mut names, section);
                });
                let mut notes: Vec<_> = match self.report.leaks() {
                    Leaks::Found(leaks) => leaks.iter().map(ToString::to_string).collect(),
                    Leaks::TooShort(too_short) => vec![too_short.to_string()],
                    Leaks::None | Leaks::NotRecorded => Vec::new(),
                };
                notes.extend(self.report.idle_pools().iter().map(ToString::to_string));
                if !notes.is_empty() {
                    section(sections, "leaks", "Memory that grows, or is idle", "empty", |section| {
                        section.string("note", &notes.join(". "));
                    });
                }
                #[cfg(feature = "serving")]
                for (id, title, grid) in super::requests::tables(&self.report, &mut names) {
                    table(sections, id, title, &grid);
                }
                self.write_findings(sections, &tree);
                if ranks.gpus() > 1 {
                    let title = if ranks.are_several() { "Ranks" } else { "GPUs" };
                    table(sections, "ranks", title, &ranks.table(&mut names));
                }
                self.write_steps(sections);
                self.write_timeline(sections);
                self.write_tables(sections, &tree, &mut names);
                self.write_charts(sections, &mut names);
                self.write_flames(sections);
                section(sections, "run", "Run", "facts", |section| {
                    facts::write(self.name.as_deref(), &self.run, &self.report, section);
                });
            });
            document.array_of_lines("names", |array| names.write(array));
            document.array_of_lines("short", |array| names.write_short(array));
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

    fn write_steps(&self, sections: &mut Array<'_>) {
        let steps = if self.steps.is_empty() { &self.recorded } else { &self.steps };
        if !steps.is_empty() {
            section(sections, "steps", "Steps", "steps", |section| {
                let note = match self.steps.is_empty() {
                    true => "Recorded steps, each until the host and the GPU were done with it.".to_owned(),
                    false => format!(
                        "All {} steps, by their durations on the host; windows that were recorded are shaded.",
                        self.steps.count()
                    ),
                };
                section.string("note", &note);
                steps.write(section);
                section.array("windows", |array| {
                    for (first, last, window) in &self.windows {
                        array.array(|range| {
                            [*first, *last, u64::from(*window)].into_iter().for_each(|it| range.number(it));
                        });
                    }
                });
            });
        }
    }

    fn write_findings(&self, sections: &mut Array<'_>, tree: &SpanTree) {
        let findings = self.report.findings();
        if findings.is_empty() {
            return section(sections, "findings", "What to change first", "empty", |section| {
                section.string("note", &self.report.advice().none());
            });
        }
        section(sections, "findings", "What to change first", "findings", |section| {
            section.array_of_lines("items", |items| {
                for finding in &findings {
                    let row = tree.row(&finding.path);
                    items.object(|item| answer::write_finding(finding, row, &self.timelines, item));
                }
            });
        });
    }

    fn write_tables(&self, sections: &mut Array<'_>, tree: &SpanTree, names: &mut Names) {
        if !tree.is_empty() {
            table(sections, "spans", "Spans", &tree.table(&self.paths, names));
        }
        for (id, title, grid) in tables::after_spans(&self.report, names) {
            table(sections, id, title, &grid);
        }
    }

    fn write_timeline(&self, sections: &mut Array<'_>) {
        if !self.timelines.is_empty() {
            section(sections, "timeline", "Timeline", "timeline", |section| self.timelines.write(section));
        }
    }

    fn write_charts(&self, sections: &mut Array<'_>, names: &mut Names) {
        if !self.charts.is_empty() {
            section(sections, "gpu", "GPU over time", "series", |section| {
                if let more @ 1.. = self.more_charts {
                    section.string("note", &format!("{more} more windows have no chart."));
                }
                section.array("charts", |array| self.charts.iter().for_each(|charts| charts.write_busy(array)));
            });
        }
        self.write_roofline(sections, names);
        if self.charts.iter().any(WindowCharts::has_memory) {
            section(sections, "memory", "Memory over time", "series", |section| {
                section.string("note", "By the span that allocated it, at the highest moment of each point.");
                section.array("charts", |array| self.charts.iter().for_each(|charts| charts.write_memory(array)));
            });
        }
        let is_line = |series: &&MemorySeries| series.points().len() > 1;
        let series: Vec<_> = self.report.memory_series().iter().filter(is_line).collect();
        if !series.is_empty() {
            section(sections, "memory-of-run", "Memory over the run", "series", |section| {
                section.string("note", "All steps, recorded or not.");
                section.array("charts", |array| {
                    series.iter().for_each(|series| window::write_memory_of_run(series, array));
                });
            });
        }
        for (index, snapshot) in self.report.memory_snapshots().iter().enumerate() {
            let (id, title) = (format!("memory-snapshot-{index}"), format!("Memory at step {}", snapshot.step()));
            section(sections, &id, &title, "table", |section| {
                let gpus: Vec<_> = snapshot.gpus().iter().map(ToString::to_string).collect();
                section.string("note", &format!("Taken {}. {}.", snapshot.reason(), gpus.join(". ")));
                tables::holders(snapshot, names).write(section);
            });
        }
        let vitals = tables::vitals(&self.report, names);
        vitals.iter().for_each(|grid| table(sections, "vitals", "Vital signs of the run", grid));
        let energy = tables::energy(&self.report, names);
        energy.iter().for_each(|grid| table(sections, "energy", "Energy of the run", grid));
        let lines = tables::heap_lines(&self.report, names);
        lines.iter().for_each(|grid| table(sections, "heap-lines", "Heap by line", grid));
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
        if let Some(roofline) = Roofline::of(&self.report, &self.paths, names) {
            section(sections, "roofline", "Roofline", "roofline", |section| {
                roofline.write(&self.paths, names, section);
            });
        }
    }

    fn write_flames(&self, sections: &mut Array<'_>) {
        if self.paths.has_host() {
            section(sections, "host-flame", "Host flame graph", "flame", |section| self.paths.write_host(section));
        }
        if self.paths.has_gpu() {
            section(sections, "gpu-flame", "GPU flame graph", "flame", |section| self.paths.write_gpu(section));
        }
    }
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
