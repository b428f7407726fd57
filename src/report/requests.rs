//! The table of the requests of one kind.

use super::{table::Table, units};
use crate::serving::{LatencyHistogram, RequestGroup, RequestsOfKind};
use std::{fmt, time::Duration};

/// The requests of one kind, by group: how many there were, and how long they took.
pub(super) struct RequestTable<'a> {
    kind: &'a RequestsOfKind,
    limit: usize,
    width: usize,
}

/// A row of the table: a group, or all requests.
struct RequestRow<'a> {
    name: String,
    group: &'a RequestGroup,
}

impl<'a> RequestTable<'a> {
    pub(super) fn of(kind: &'a RequestsOfKind, limit: usize, width: usize) -> Self {
        Self { kind, limit, width }
    }

    fn heading(&self) -> String {
        let RequestsOfKind { name, total, in_flight, peak_in_flight, .. } = self.kind;
        let errors = units::percent(100.0 * total.error_rate().unwrap_or(0.0));
        format!(
            "{} requests `{name}`, {} a second, {} failed ({errors}); in flight: {in_flight}, at most {peak_in_flight}",
            total.count(),
            units::rate(total.rate),
            total.errors,
        )
    }

    fn notes(&self) -> Vec<String> {
        let total = &self.kind.total;
        let mut notes = Vec::new();
        let spread = |what: &str, times: &LatencyHistogram| {
            let [p50, p99, max] = [times.percentile(50.0), times.percentile(99.0), times.max()];
            let text = |time: Option<Duration>| units::or_none(time.map(units::time));
            format!("{what}: median {}, p99 {}, at most {}", text(p50), text(p99), text(max))
        };
        for (what, times) in [
            ("waiting before the span", &total.queue),
            ("response, from the intended start", &total.response),
            ("first token", &total.tokens.first),
            ("between tokens", &total.tokens.between),
        ] {
            if times.count() > 0 {
                notes.push(spread(what, times));
            }
        }
        let rates = [("prefill", total.tokens.prefill_rate()), ("decode, per request", total.tokens.decode_rate())];
        for (what, rate) in rates {
            notes.extend(rate.map(|rate| format!("{what}: {} tokens a second", units::rate(rate))));
        }
        notes.extend(total.mean_batch().map(|size| format!("computed in batches of {size:.1} on average")));
        let gpu = &self.kind.gpu;
        if let Some(shared) = gpu.shared_percent() {
            let count = gpu.time.count();
            let time = spread(&format!("GPU time of {count} recorded requests"), &gpu.time);
            let shared = format!("; {} of it split evenly among the requests of batches", units::percent(shared));
            notes.push(time + if gpu.shared.is_zero() { "" } else { &shared });
        }
        if let wrong @ 1.. = total.implausible_starts {
            notes.push(format!("{wrong} intended starts are in the future or over an hour ago: a clock is wrong"));
        }
        if let lost @ 1.. = total.latency.lost() {
            notes.push(format!("{lost} latencies are missing from the percentiles: there was no memory for them"));
        }
        notes
    }
}

impl fmt::Display for RequestTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = |group: &RequestGroup| {
            let values: Vec<_> = group.labels.iter().map(|(_, value)| value.as_str()).collect();
            if values.is_empty() { "no label".to_owned() } else { values.join(" ") }
        };
        let groups = &self.kind.groups;
        // A single group without labels is all there is.
        let shown = if groups.iter().all(|group| group.labels.is_empty()) { &[] } else { groups.as_slice() };
        let limited = &shown[..shown.len().min(self.limit)];
        let mut rows: Vec<_> = limited.iter().map(|group| RequestRow { name: values(group), group }).collect();
        rows.push(RequestRow { name: "all".to_owned(), group: &self.kind.total });
        let mut table = Table::default();
        table.heading(self.heading());
        table.text("Requests", &rows, |row| row.name.clone());
        table.number("Number", &rows, |row| row.group.count().to_string());
        table.number("Failed", &rows, |row| row.group.errors.to_string());
        table.number("Mean", &rows, |row| row.group.latency.mean().map(units::column_time)).droppable(3);
        table.number("p50", &rows, |row| percentile(row, 50.0));
        table.number("p90", &rows, |row| percentile(row, 90.0)).droppable(1);
        table.number("p95", &rows, |row| percentile(row, 95.0)).droppable(2);
        table.number("p99", &rows, |row| percentile(row, 99.0));
        table.number("p99.9", &rows, |row| percentile(row, 99.9));
        table.number("Max", &rows, |row| row.group.latency.max().map(units::column_time));
        self.notes().into_iter().for_each(|note| table.note(note));
        table.left_out(shown.len() - limited.len()).width(self.width).write(f)
    }
}

fn percentile(row: &RequestRow<'_>, percent: f64) -> Option<String> {
    row.group.latency.percentile(percent).map(units::column_time)
}
