//! The tables of requests and of service levels.

use super::{
    cell::{Grid, Unit},
    packed::Names,
};
use crate::{
    report::Report,
    serving::{RequestGpu, RequestGroup, ServiceLevel},
};

/// A row of the table: the kind of requests, the labels of a group, and the group. GPU time is that of all of a kind.
struct RequestRow<'a>(&'a str, String, &'a RequestGroup, Option<&'a RequestGpu>);

/// Returns the tables with their ids and titles.
pub(super) fn tables(report: &Report, names: &mut Names) -> Vec<(&'static str, &'static str, Grid)> {
    let requests = report.requests();
    let mut rows = Vec::new();
    for kind in requests.kinds.iter().filter(|kind| kind.is_used()) {
        rows.push(RequestRow(&kind.name, "all".to_owned(), &kind.total, Some(&kind.gpu)));
        for group in kind.groups.iter().filter(|group| !group.labels.is_empty()) {
            let labels = group.labels.iter().map(|(name, value)| format!("{name}={value}"));
            rows.push(RequestRow(&kind.name, labels.collect::<Vec<_>>().join(" "), group, None));
        }
    }
    let mut grid = Grid::default();
    grid.names("Requests", &rows, names, |row| row.0);
    grid.column(("Group", Unit::Text, "the values of the chosen fields"), &rows, |row| row.1.clone());
    grid.column(("# of Requests", Unit::Number, "that have ended"), &rows, |row| row.2.count());
    grid.column(("Failed", Unit::Number, ""), &rows, |row| row.2.errors);
    grid.column(("Mean", Unit::Time, "from the creation of the span to its close"), &rows, |row| row.2.latency.mean());
    grid.column(("p50", Unit::Time, ""), &rows, |row| row.2.latency.percentile(50.0));
    grid.column(("p90", Unit::Time, ""), &rows, |row| row.2.latency.percentile(90.0));
    grid.column(("p99", Unit::Time, ""), &rows, |row| row.2.latency.percentile(99.0));
    grid.column(("p99.9", Unit::Time, ""), &rows, |row| row.2.latency.percentile(99.9));
    grid.column(("Longest", Unit::Time, ""), &rows, |row| row.2.latency.max());
    grid.column(("Queue p99", Unit::Time, "before the span"), &rows, |row| row.2.queue.percentile(99.0));
    let help = "from the intended start to the close";
    grid.column(("Response p99", Unit::Time, help), &rows, |row| row.2.response.percentile(99.0));
    grid.column(("First token p99", Unit::Time, ""), &rows, |row| row.2.tokens.first.percentile(99.0));
    grid.column(("Between tokens p99", Unit::Time, ""), &rows, |row| row.2.tokens.between.percentile(99.0));
    let gpu = |row: &RequestRow<'_>| row.3.and_then(|gpu| gpu.time.mean());
    grid.column(("GPU Mean", Unit::Time, "of recorded requests, with their shares of batches"), &rows, gpu);
    grid.column(("GPU Shared", Unit::Percent, "split evenly among the requests of batches"), &rows, |row| {
        row.3.and_then(RequestGpu::shared_percent)
    });
    let mut found = Vec::new();
    if !rows.is_empty() {
        found.push(("requests", "Requests", grid));
    }
    let levels = &requests.service_levels;
    if !levels.is_empty() {
        let mut grid = Grid::default();
        grid.names("Objective", levels, names, |level| &level.objective);
        grid.column(("# of Requests", Unit::Number, "within the window"), levels, |level| level.requests);
        grid.column(("Bad", Unit::Number, "too slow, or failed"), levels, |level| level.bad);
        let left = |level: &ServiceLevel| 100.0 * level.budget_left();
        grid.column(("Budget left", Unit::Percent, "of the error budget"), levels, left);
        grid.column(("Alerts", Unit::Number, "of the whole run"), levels, |level| level.alerts);
        found.push(("service-levels", "Service levels", grid));
    }
    found
}
