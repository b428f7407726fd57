//! The HTML page of a comparison, with differential flame graphs.

use super::{Diff, Side, summary, tables};
use crate::html::{Page, Table, section};
use kernspan::report::units;
use kernspan_check::{
    baseline::BaselineFinding,
    comparison::{CountChange, Explanation, KernelTimeChange, Presence, SpanChange, TimeChange},
};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Returns the page: the step, both sides, explanations, flame graphs, spans, kernels and findings.
pub(super) fn page(diff: &Diff, part: f64) -> Page {
    let mut page = Page::new(&format!("{} → {}", diff.sides[0].name, diff.sides[1].name));
    overview(&mut page, diff, part);
    explanations(&mut page, diff);
    flames(&mut page, diff);
    spans(&mut page, &diff.comparison.spans);
    kernel_times(&mut page, diff);
    findings(&mut page, diff);
    page
}

fn overview(page: &mut Page, diff: &Diff, part: f64) {
    let (rows, notes) = (summary::rows(diff, part), summary::notes(&diff.comparison));
    if let Some(step) = rows.first() {
        let change = format!(
            "{} ({})",
            step.change.as_deref().unwrap_or(units::NOTHING),
            step.percent.as_deref().unwrap_or(units::NOTHING)
        );
        let outcome = format!("{}; {}", step.outcome.as_deref().unwrap_or(""), step.interval.as_deref().unwrap_or(""));
        let items = json!([
            ["step before", step.before, "typical"],
            ["step after", step.after, "typical"],
            ["change", change, outcome]
        ]);
        page.push("overview", "Step", "tiles", json!({ "items": items }));
    }
    let facts = |side: &Side| {
        let machines: Vec<_> = side.baseline.runs.iter().map(|run| run.machine.to_string()).collect();
        let programs: Vec<_> = side.baseline.runs.iter().map(|run| run.program.clone()).collect();
        let counts = [("runs", side.baseline.runs.len() as u64), ("steps", side.baseline.steps())];
        let mut items: Vec<_> = counts.iter().map(|(name, count)| json!([name, count.to_string()])).collect();
        let lists = [("files", vec![side.name.clone()]), ("programs", programs), ("machines", machines)];
        items.extend(lists.into_iter().map(|(name, list)| json!([name, distinct(list).join(", ")])));
        json!({"items": items, "notes": []})
    };
    let sides = ["before", "after"].iter().zip(&diff.sides);
    let columns: Vec<_> = sides.map(|(name, side)| section(name, &title(name), "facts", facts(side))).collect();
    page.push("sides", "Runs", "columns", json!({"columns": columns, "note": notes.join(" · ")}));
    let mut table = Table::default();
    table.column(("A step", "text", ""), &rows, |row| json!(row.name));
    table.column(("Before", "word", ""), &rows, |row| json!(row.before));
    table.column(("After", "word", ""), &rows, |row| json!(row.after));
    table.column(("Change", "word", ""), &rows, |row| json!(row.change));
    table.column(("Change %", "word", ""), &rows, |row| json!(row.percent));
    table.column(("99 % interval", "word", "The 99 % confidence interval of the change"), &rows, |row| {
        json!(row.interval)
    });
    table.column(("Outcome", "word", ""), &rows, |row| json!(row.outcome.as_deref().unwrap_or_default()));
    page.push("summary", "Step, counts and memory", "table", table.members());
}

/// Removes duplicates.
fn distinct(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list.dedup();
    list
}

fn title(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns a change, or nothing if it is 0.
fn change(nanos: f64) -> Value {
    if nanos == 0.0 { Value::Null } else { json!(nanos.round()) }
}

fn time(nanos: f64) -> Value {
    if nanos > 0.0 { json!(nanos.round()) } else { Value::Null }
}

fn explanations(page: &mut Page, diff: &Diff) {
    const ROWS: usize = 200;
    let explanations = diff.comparison.explanations();
    let rows: Vec<_> = explanations.iter().take(ROWS).collect();
    if rows.is_empty() {
        let note = "No span has changed by as much as a thousandth of the step.";
        return page.push("explanations", "Explanations", "empty", json!({ "note": note }));
    }
    let mut table = Table::default();
    let names: Vec<_> = rows.iter().map(|row| page.name(&row.path.join(" › "))).collect();
    let rows: Vec<_> = rows.into_iter().zip(names).collect();
    type Row<'a> = (&'a Explanation, usize);
    table.column(("Span (self time)", "name", ""), &rows, |row: &Row<'_>| json!(row.1));
    table.column(("On", "word", ""), &rows, |row| json!(if row.0.is_gpu { "GPU" } else { "host" }));
    table.column(("Change", "change", "of the time in a step"), &rows, |row| change(row.0.change.value));
    table.column(("At least", "change", "the lower end of the 99 % interval"), &rows, |row| change(row.0.change.low));
    table.column(("At most", "change", "the upper end of the 99 % interval"), &rows, |row| change(row.0.change.high));
    table.column(("Of a step", "percent", ""), &rows, |row| json!(row.0.percent()));
    table.column(("Sure", "word", "whether the interval excludes 0"), &rows, |row| {
        json!(if row.0.is_sure { "yes" } else { "" })
    });
    table.column(("More or fewer", "text", ""), &rows, |row| {
        json!(row.0.counts.iter().map(CountChange::signed).collect::<Vec<_>>().join(", "))
    });
    table.column(("Place", "text", ""), &rows, |row| json!(row.0.location.as_deref().unwrap_or_default()));
    page.push("explanations", "What explains the difference", "table", table.members());
}

fn flames(page: &mut Page, diff: &Diff) {
    for (id, name, which) in [("host", "Host", FlameTime::Host), ("gpu", "GPU", FlameTime::Gpu)] {
        let flames = ["before", "after"].map(|side| Flame::of(&diff.comparison.spans, which, side == "after"));
        if flames.iter().all(Flame::is_empty) {
            continue;
        }
        let columns: Vec<_> = ["before", "after"]
            .iter()
            .zip(flames)
            .map(|(side, flame)| section(&format!("{id}-flame-{side}"), &title(side), "flame", flame.members(page)))
            .collect();
        let note = "Red frames got slower, blue ones faster (self time). Widths are each side's own times.";
        let name = format!("{name} differential flame graph");
        page.push(&format!("{id}-flame"), &name, "columns", json!({"columns": columns, "note": note}));
    }
}

fn spans(page: &mut Page, spans: &[SpanChange]) {
    let rows: Vec<_> = spans.iter().map(|span| (span, page.name(span.name()))).collect();
    type Row<'a> = (&'a SpanChange, usize);
    let mut table = Table::default();
    table.column(("Span", "name", ""), &rows, |row: &Row<'_>| json!(row.1));
    table.column(("", "word", "new, gone or moved"), &rows, |row| {
        json!(tables::span_state(&row.0.presence).unwrap_or_default())
    });
    let help = "on the step's thread, with nested spans";
    table.column(("Before", "time", help), &rows, |row| time(row.0.total_host.before.value));
    table.column(("After", "time", help), &rows, |row| time(row.0.total_host.adjusted_after()));
    table.column(("Change", "change", help), &rows, |row| change(row.0.total_host.change.value));
    let help = "without nested spans";
    table.column(("Self change", "change", help), &rows, |row| change(row.0.host.change.value));
    table.column(("At least", "change", help), &rows, |row| change(row.0.host.change.low));
    table.column(("At most", "change", help), &rows, |row| change(row.0.host.change.high));
    let help = "GPU work of the span and its nested spans";
    table.column(("CUDA before", "time", help), &rows, |row| time(row.0.total_gpu.before.value));
    table.column(("CUDA after", "time", help), &rows, |row| time(row.0.total_gpu.adjusted_after()));
    table.column(("CUDA change", "change", help), &rows, |row| change(row.0.total_gpu.change.value));
    table.column(("Other threads", "change", ""), &rows, |row| change(row.0.background.change.value));
    table.column(("More or fewer", "text", ""), &rows, |row| {
        json!(row.0.counts.iter().map(CountChange::signed).collect::<Vec<_>>().join(", "))
    });
    table.column(("Place", "text", ""), &rows, |row| json!(row.0.location.as_deref().unwrap_or_default()));
    let mut members = table.members();
    members["parents"] = parents(spans);
    page.push("spans", "Spans in a step", "table", members);
}

/// Returns the row of each span's parent; a parent comes before its children.
fn parents(spans: &[SpanChange]) -> Value {
    let mut rows: HashMap<&[String], usize> = HashMap::new();
    let mut parents = Vec::new();
    for (row, span) in spans.iter().enumerate() {
        let around = span.path.split_last().map_or(&[][..], |(_, around)| around);
        parents.push(rows.get(around).map_or(-1, |&row| row as i64));
        rows.insert(&span.path, row);
    }
    parents.into()
}

fn kernel_times(page: &mut Page, diff: &Diff) {
    const ROWS: usize = 1_000;
    let kernels = diff.kernels();
    let left_out = kernels.len().saturating_sub(ROWS);
    let rows: Vec<_> = kernels.iter().take(ROWS).map(|kernel| (kernel, page.kernel(&kernel.name))).collect();
    if rows.is_empty() {
        return;
    }
    type Row<'a> = (&'a KernelTimeChange, usize);
    let nanos = |time: std::time::Duration| json!(time.as_nanos() as u64);
    let mut table = Table::default();
    table.column(("Kernel", "name", ""), &rows, |row: &Row<'_>| json!(row.1));
    table.column(("", "word", "new or gone"), &rows, |row| json!(tables::kernel_state(row.0).unwrap_or_default()));
    table.column(("Launches", "rate", "in a step before"), &rows, |row| json!(row.0.before.map(|it| it.launches)));
    table.column(("after", "rate", "in a step after"), &rows, |row| json!(row.0.after.map(|it| it.launches)));
    table.column(("CUDA time", "time", "in a step before"), &rows, |row| {
        row.0.before.map_or(Value::Null, |it| nanos(it.time))
    });
    table.column(("after", "time", "in a step after"), &rows, |row| {
        row.0.after.map_or(Value::Null, |it| nanos(it.time))
    });
    table.column(("Change", "change", ""), &rows, |row| change(row.0.change));
    table.column(("A launch", "time", "before"), &rows, |row| row.0.before.map_or(Value::Null, |it| nanos(it.average)));
    table.column(("after", "time", "after"), &rows, |row| row.0.after.map_or(Value::Null, |it| nanos(it.average)));
    let mut members = table.members();
    members["leftOut"] = left_out.into();
    page.push("kernels", "Kernels and copies in a step", "table", members);
}

fn findings(page: &mut Page, diff: &Diff) {
    let new = diff.comparison.new_findings.iter().map(|finding| ("new", finding));
    let rows: Vec<_> = new.chain(diff.comparison.gone_findings.iter().map(|finding| ("gone", finding))).collect();
    if rows.is_empty() {
        return page.push("findings", "Findings", "empty", json!({"note": "No finding is new or gone."}));
    }
    type Row<'a> = (&'static str, &'a BaselineFinding);
    let mut table = Table::default();
    table.column(("Finding", "text", ""), &rows, |row: &Row<'_>| json!(row.1.title));
    table.column(("", "word", ""), &rows, |row| json!(row.0));
    table.column(("Saves", "word", "of a step"), &rows, |row| json!(units::time(row.1.saving)));
    table.column(("Kind", "word", ""), &rows, |row| json!(row.1.kind));
    table.column(("Span", "text", ""), &rows, |row| json!(row.1.path.join(" › ")));
    table.column(("Place", "text", ""), &rows, |row| json!(row.1.location.as_deref().unwrap_or_default()));
    page.push("findings", "Findings that are new or gone", "table", table.members());
}

/// The time that a flame graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlameTime {
    Host,
    Gpu,
}

/// The frames of one side: as wide as their time on that side, coloured by how much longer they take after.
#[derive(Debug, Default)]
struct Flame<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Debug)]
struct Frame<'a> {
    parent: Option<usize>,
    name: &'a str,
    /// The frame's self time on this side, in nanoseconds.
    own: f64,
    /// How much longer the frame's self time is after, in nanoseconds.
    change: f64,
}

impl<'a> Flame<'a> {
    /// Returns the frames of the side before or after.
    fn of(spans: &'a [SpanChange], shown: FlameTime, is_after: bool) -> Self {
        let mut flame = Self::default();
        let mut places: HashMap<&[String], usize> = HashMap::new();
        let mut sorted: Vec<_> = spans.iter().filter_map(|span| Some((path(span, is_after)?, span))).collect();
        // Only in the tree after do moved spans come after the spans around them.
        sorted.sort_by_key(|(path, _)| path.len());
        for (path, span) in sorted {
            let time: &TimeChange = if shown == FlameTime::Host { &span.host } else { &span.gpu };
            let own = if is_after { time.after.value } else { time.before.value };
            let around = path.split_last().map_or(&[][..], |(_, around)| around);
            let parent = places.get(around).copied();
            places.insert(path, flame.frames.len());
            let name = path.last().map_or("", String::as_str);
            flame.frames.push(Frame { parent, name, own: own.max(0.0), change: time.change.value });
        }
        flame
    }

    fn is_empty(&self) -> bool {
        self.frames.iter().all(|frame| frame.own == 0.0)
    }

    /// Returns the members of the section.
    fn members(self, page: &mut Page) -> Value {
        let parents: Vec<_> = self.frames.iter().map(|frame| frame.parent.map_or(-1, |parent| parent as i64)).collect();
        let names: Vec<_> = self.frames.iter().map(|frame| page.name(frame.name)).collect();
        let rounded = |of: fn(&Frame<'a>) -> f64| self.frames.iter().map(|frame| of(frame).round()).collect::<Vec<_>>();
        let (values, changes) = (rounded(|frame| frame.own), rounded(|frame| frame.change));
        json!({"unit": "time", "parents": parents, "names": names, "values": values, "changes": changes})
    }
}

/// Returns the path of a span on a side, if it exists there.
fn path(span: &SpanChange, is_after: bool) -> Option<&[String]> {
    match &span.presence {
        Presence::Added if !is_after => None,
        Presence::Gone if is_after => None,
        Presence::Moved { from } if !is_after => Some(from),
        _ => Some(&span.path),
    }
}
