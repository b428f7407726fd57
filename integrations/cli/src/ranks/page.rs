//! The page of ranks.

use super::facts::Facts;
use crate::html::{Page, Table};
use kernspan::{
    analysis::{ClockOffset, RankWaits},
    report::units,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};

/// The most ranks and steps that bars and the heat map show.
const SHOWN: usize = 256;

/// Returns the page: what is late, ranks as bars and as a table, waits by rank and step, collectives and clocks.
pub(super) fn page(waits: &RankWaits, facts: &Facts, said: &[String]) -> Page {
    let mut page = Page::new("Ranks");
    let label = |line: &str| match line {
        _ if line.starts_with("no rank is late") => "",
        _ if line.starts_with("work is uneven") => "uneven",
        _ if facts.slow_links.iter().any(|link| link.to_string() == line) => "slow link",
        _ => "late",
    };
    let items: Vec<_> = said.iter().map(|line| (label(line), line.as_str())).collect();
    let warnings = waits.warnings().iter().chain(&facts.warnings).map(|line| format!("Warning: {line}."));
    page.push("answer", "Who is late", "facts", json!({"items": items, "notes": warnings.collect::<Vec<_>>()}));
    late(&mut page, waits);
    links(&mut page, facts);
    let left_out = waits.ranks().len().saturating_sub(SHOWN);
    let mut note = "What a step of each rank consists of, on average.".to_owned();
    if left_out > 0 {
        note += &format!(" {left_out} more ranks are in the table.");
    }
    let rows: Vec<Value> =
        waits.ranks().iter().take(SHOWN).map(|rank| bar(rank.rank, rank.step, rank.waits, facts)).collect();
    let parts = ["own time", "exposed communication", "waiting for other ranks"];
    page.push("steps", "Step by rank", "bars", json!({"parts": parts, "rows": rows, "note": note}));
    heat(&mut page, facts);
    page.push("ranks", "Ranks", "table", ranks(waits, facts));
    collectives(&mut page, facts);
    clocks(&mut page, facts);
    page
}

fn nanos(time: Duration) -> Value {
    json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn late(page: &mut Page, waits: &RankWaits) {
    let rows = waits.late();
    if rows.is_empty() {
        return;
    }
    let mut table = Table::default();
    table.column(("Rank", "word", ""), rows, |late| json!(late.rank.to_string()));
    table.column(("Others wait", "time", "for it, in a step"), rows, |late| nanos(late.waited_for));
    table.column(("Saves up to", "time", "of a step, if each rank has its own GPU"), rows, |late| {
        late.saves_up_to.map_or(Value::Null, nanos)
    });
    table.column(("When", "word", ""), rows, |late| json!(late.when.to_string()));
    let cause = |of: fn(&kernspan::analysis::LateCause) -> Value| {
        move |late: &kernspan::analysis::LateRank| late.cause.as_ref().map_or(Value::Null, of)
    };
    table.column(("Span", "word", "that takes longer than on others"), rows, cause(|it| json!(it.path.join(" > "))));
    table.column(("Location", "word", ""), rows, cause(|it| json!(it.location.clone().unwrap_or_default())));
    table.column(("Time", "time", "of the span in a step"), rows, cause(|it| nanos(it.time)));
    table.column(("Others", "time", "the median of other ranks"), rows, cause(|it| nanos(it.others)));
    page.push("late", "Late ranks", "table", table.members());
}

fn links(page: &mut Page, facts: &Facts) {
    let rows = &facts.slow_links;
    if rows.is_empty() {
        return;
    }
    let mut table = Table::default();
    table.column(("Group", "word", ""), rows, |it| json!(it.group));
    table.column(("Ranks", "word", ""), rows, |it| json!(super::first_of(&it.ranks)));
    table.column(("Hosts", "word", ""), rows, |it| json!(it.hosts.join(", ")));
    table.column(("Operation", "word", ""), rows, |it| json!(it.operation.as_str()));
    table.column(("Transfer", "time", "in a step, without waiting"), rows, |it| nanos(it.transfer));
    table.column(("Others", "time", "the median of groups that are alike"), rows, |it| nanos(it.others));
    table.column(("Bus", "word", "bandwidth that each link carries"), rows, |it| {
        json!(it.bandwidths.map(|(own, _)| units::bandwidth(own)))
    });
    table.column(("Bus of others", "word", ""), rows, |it| {
        json!(it.bandwidths.map(|(_, others)| units::bandwidth(others)))
    });
    page.push("links", "Slow links", "table", table.members());
}

fn bar(rank: u32, step: Duration, waits: Duration, facts: &Facts) -> Value {
    let exposed = facts.exposed.get(&rank).copied().unwrap_or_default().min(step);
    let waiting = waits.min(exposed);
    let values = [step - exposed, exposed - waiting, waiting].map(nanos);
    json!({"label": format!("Rank {rank}: {}", units::time(step)), "values": values})
}

fn heat(page: &mut Page, facts: &Facts) {
    let steps: BTreeSet<u64> = facts.waits.values().flat_map(|steps| steps.keys().copied()).collect();
    let steps: Vec<u64> = steps.into_iter().take(SHOWN).collect();
    let ranks: Vec<_> = facts.waits.iter().take(SHOWN).collect();
    let values: Vec<Vec<Value>> = ranks
        .iter()
        .map(|(_, waits)| steps.iter().map(|step| waits.get(step).map_or(Value::Null, |time| nanos(*time))).collect())
        .collect();
    let note = "The time that each rank waits for others, by step. Where the others wait, the late rank does not.";
    let columns: Vec<_> = steps.iter().map(|step| format!("step {step}")).collect();
    let rows: Vec<_> = ranks.iter().map(|(rank, _)| format!("rank {rank}")).collect();
    let members = json!({
        "label": "waits", "rows": rows, "columns": columns, "values": values, "unit": "time", "note": note
    });
    page.push("waits", "Waits by step", "heat", members);
}

fn ranks(waits: &RankWaits, facts: &Facts) -> Value {
    let rows = waits.ranks();
    let mut table = Table::default();
    table.column(("Rank", "word", ""), rows, |rank| json!(rank.rank.to_string()));
    table.column(("Host", "word", ""), rows, |rank| json!(rank.host));
    table.column(("Steps", "number", "that are whole"), rows, |rank| json!(rank.steps));
    table.column(("Step", "time", "mean"), rows, |rank| nanos(rank.step));
    table.column(("Exposed", "time", "in collectives that no kernel hides"), rows, |rank| {
        facts.exposed.get(&rank.rank).map_or(Value::Null, |time| nanos(*time))
    });
    table.column(("Waits", "time", "for others in collectives"), rows, |rank| nanos(rank.waits));
    table.column(("Others wait", "time", "for it, where it is the last"), rows, |rank| nanos(rank.waited_for));
    table.column(("Collectives", "number", "in all steps"), rows, |rank| json!(rank.collectives));
    table.column(("Last in", "number", "collectives at which it arrives last"), rows, |rank| json!(rank.last));
    let is_late = |rank: u32| waits.late().iter().any(|late| late.rank == rank);
    let marked: Vec<_> = (0..rows.len()).filter(|&row| is_late(rows[row].rank)).collect();
    let mut members = table.members();
    members["marked"] = json!(marked);
    members
}

fn collectives(page: &mut Page, facts: &Facts) {
    let mut table = Table::default();
    let rows = &facts.groups;
    let each = |time: Duration, steps: u64| nanos(time.div_f64(steps.max(1) as f64));
    table.column(("Group", "word", ""), rows, |it| json!(it.group));
    table.column(("Operation", "word", ""), rows, |it| json!(it.operation.as_str()));
    table.column(("Ranks", "number", ""), rows, |it| json!(it.ranks));
    table.column(("Count", "number", "in all steps"), rows, |it| json!(it.count));
    table.column(("Bytes", "memory", "of all of them"), rows, |it| json!((it.bytes > 0).then_some(it.bytes)));
    table.column(("Time", "time", "in a step, with waiting"), rows, |it| each(it.time, it.steps));
    table.column(("Exposed", "time", "in a step"), rows, |it| each(it.exposed, it.steps));
    table.column(("Hidden", "time", "in a step, by kernels that compute"), rows, |it| each(it.hidden(), it.steps));
    table.column(("Transfer", "time", "in a step, without waiting"), rows, |it| each(it.transfer, it.steps));
    let rate = |rate: Option<f64>| json!(rate.map(units::bandwidth));
    table.column(("Algorithm", "word", "bandwidth, as NCCL's tests define it"), rows, |it| {
        rate(it.algorithm_bandwidth())
    });
    table.column(("Bus", "word", "bandwidth that each link carries"), rows, |it| rate(it.bus_bandwidth()));
    page.push("collectives", "Collectives", "table", table.members());
}

fn clocks(page: &mut Page, facts: &Facts) {
    if facts.clocks.len() < 2 {
        return;
    }
    let rows = &facts.clocks;
    let mut table = Table::default();
    let bound = |of: fn((i64, i64)) -> i64| move |it: &ClockOffset| json!(it.interval.map(of).map(signed));
    table.column(("Host", "word", ""), rows, |it| json!(it.host));
    table.column(("Ranks", "word", ""), rows, |it| json!(super::first_of(&it.ranks)));
    table.column(("Ahead at least", "word", "of the first clock"), rows, bound(|(least, _)| least));
    table.column(("At most", "word", ""), rows, bound(|(_, most)| most));
    page.push("clocks", "Clocks", "table", table.members());
}

/// Writes a time that may be negative.
fn signed(nanos: i64) -> String {
    let time = units::time(Duration::from_nanos(nanos.unsigned_abs()));
    if nanos < 0 { format!("−{time}") } else { time }
}
