//! The tables of requests and of service levels.

use super::{
    cell::{Grid, Unit},
    packed::Names,
};
use crate::{
    export::time_text::Utc,
    report::Report,
    serving::{RequestGpu, RequestGroup, RequestsOfKind, ServiceLevel, SlowRequest},
};

/// A row of the table.
struct RequestRow<'a> {
    name: &'a str,
    labels: String,
    group: &'a RequestGroup,
    /// The kind, if the row has all of its requests.
    kind: Option<&'a RequestsOfKind>,
}

/// Returns the tables with their ids and titles.
pub(super) fn tables(report: &Report, names: &mut Names) -> Vec<(&'static str, &'static str, Grid)> {
    let requests = report.requests();
    let mut rows = Vec::new();
    for kind in requests.kinds.iter().filter(|kind| kind.is_used()) {
        let name = kind.name.as_str();
        rows.push(RequestRow { name, labels: "all".to_owned(), group: &kind.total, kind: Some(kind) });
        for group in kind.groups.iter().filter(|group| !group.labels.is_empty()) {
            rows.push(RequestRow { name, labels: text(&group.labels), group, kind: None });
        }
    }
    let mut grid = Grid::default();
    grid.names("Requests", &rows, names, |row| row.name);
    grid.column(("Group", Unit::Text, "the values of the chosen fields"), &rows, |row| row.labels.clone());
    grid.column(("# of Requests", Unit::Number, "that have ended"), &rows, |row| row.group.count());
    grid.column(("Rate", Unit::Rate, "per second"), &rows, |row| row.group.rate);
    grid.column(("Failed", Unit::Number, ""), &rows, |row| row.group.errors);
    grid.column(("In flight", Unit::Number, "at the end of the run"), &rows, |row| row.kind.map(|kind| kind.in_flight));
    let help = "the highest of 20 readings a second";
    grid.column(("Most in flight", Unit::Number, help), &rows, |row| row.kind.map(|kind| kind.peak_in_flight));
    grid.column(("Mean", Unit::Time, "from the creation of the span to its close"), &rows, |row| {
        row.group.latency.mean()
    });
    grid.column(("p50", Unit::Time, ""), &rows, |row| row.group.latency.percentile(50.0));
    grid.column(("p90", Unit::Time, ""), &rows, |row| row.group.latency.percentile(90.0));
    grid.column(("p95", Unit::Time, ""), &rows, |row| row.group.latency.percentile(95.0));
    grid.column(("p99", Unit::Time, ""), &rows, |row| row.group.latency.percentile(99.0));
    grid.column(("p99.9", Unit::Time, ""), &rows, |row| row.group.latency.percentile(99.9));
    grid.column(("Longest", Unit::Time, ""), &rows, |row| row.group.latency.max());
    grid.column(("Queue p99", Unit::Time, "before the span"), &rows, |row| row.group.queue.percentile(99.0));
    let help = "from the intended start to the close";
    grid.column(("Response p99", Unit::Time, help), &rows, |row| row.group.response.percentile(99.0));
    grid.column(("First token p99", Unit::Time, ""), &rows, |row| row.group.tokens.first.percentile(99.0));
    grid.column(("Between tokens p99", Unit::Time, ""), &rows, |row| row.group.tokens.between.percentile(99.0));
    let gpu = |row: &RequestRow<'_>| row.kind.and_then(|kind| kind.gpu.time.mean());
    grid.column(("GPU Mean", Unit::Time, "of recorded requests, with their shares of batches"), &rows, gpu);
    grid.column(("GPU Shared", Unit::Percent, "split evenly among the requests of batches"), &rows, |row| {
        row.kind.map(|kind| &kind.gpu).and_then(RequestGpu::shared_percent)
    });
    let mut found = Vec::new();
    if !rows.is_empty() {
        found.push(("requests", "Requests", grid));
    }
    let slowest: Vec<_> =
        requests.kinds.iter().flat_map(|kind| kind.slowest.iter().map(move |slow| (kind, slow))).collect();
    if !slowest.is_empty() {
        found.push(("slowest-requests", "Slowest requests", slow_requests(&slowest, names)));
    }
    let levels = &requests.service_levels;
    if !levels.is_empty() {
        let mut grid = Grid::default();
        grid.names("Objective", levels, names, |level| &level.objective);
        grid.column(("# of Requests", Unit::Number, "within the window"), levels, |level| level.requests);
        grid.column(("Bad", Unit::Number, "too slow, or failed"), levels, |level| level.bad);
        let budget = |level: &ServiceLevel| level.budget_text();
        grid.column(("Error budget", Unit::Word, "the bad requests that the objective allows"), levels, budget);
        grid.column(("Alerts", Unit::Number, "of the whole run"), levels, |level| level.alerts);
        found.push(("service-levels", "Service levels", grid));
    }
    found
}

/// Returns the table of the slowest requests, with where they were recorded.
fn slow_requests(rows: &[(&RequestsOfKind, &SlowRequest)], names: &mut Names) -> Grid {
    let recorded = |&(_, slow): &(&RequestsOfKind, &SlowRequest)| slow.recorded.clone();
    let mut grid = Grid::default();
    grid.names("Requests", rows, names, |(kind, _)| &kind.name);
    grid.column(("Group", Unit::Text, "the values of the chosen fields"), rows, |(_, slow)| text(&slow.labels));
    let help = "from the intended start, or else from the creation of the span, to its close";
    grid.column(("Time", Unit::Time, help), rows, |(_, slow)| slow.time);
    grid.column(("Latency", Unit::Time, "from the creation of the span to its close"), rows, |(_, slow)| slow.latency);
    grid.column(("Start", Unit::Word, "when its span was created"), rows, |(_, slow)| {
        Utc::from(slow.start).to_string()
    });
    grid.column(("Failed", Unit::Word, ""), rows, |(_, slow)| slow.is_error.then(|| "yes".to_owned()));
    let window = |row: &(&RequestsOfKind, &SlowRequest)| recorded(row).map(|span| span.window.to_string());
    grid.column(("Window", Unit::Word, "the window that recorded it"), rows, window);
    let trace = |row: &(&RequestsOfKind, &SlowRequest)| Some(format!("{:032x}", recorded(row)?.context?.trace_id));
    grid.column(("Trace id", Unit::Word, "of OpenTelemetry"), rows, trace);
    let file = |row: &(&RequestsOfKind, &SlowRequest)| Some(recorded(row)?.files.first()?.display().to_string());
    grid.column(("File", Unit::Text, "the first one of its window"), rows, file);
    grid
}

/// Returns the values of fields as text.
fn text(labels: &[(String, String)]) -> String {
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.join(" ")
}
