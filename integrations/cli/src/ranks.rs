//! The command `ranks`: which rank of a distributed run the others wait for, and why it is late.

mod facts;
mod page;

use self::facts::Facts;
use crate::{
    fault::{Fault, say},
    hang,
    input::Inputs,
    json::json,
    output::{Format, Section, Style},
};
use kernspan::{
    analysis::{Analysis, CollectiveGroup, RankProfile, RankWait, RankWaits, SlowLink},
    report::{Table, units},
};
use kernspan_parquet::{TableFolder, compare_ranks};
use serde_json::Value;
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// The spans that text and Markdown show.
const SPANS: usize = 5;
/// The most ranks that a table has. JSON has all.
const SHOWN: usize = 64;

/// Print which rank the others wait for, and in which span it is late
///
/// Reads the traces of all ranks of a run, of kernspan or of PyTorch. Clocks need not be synchronised: a collective
/// lasts, on each rank, from the rank's arrival to the common end, so the last rank to arrive has the shortest one. The
/// difference is the time that the others wait for it. A rank is late if even the one that waits the least does so for
/// 5 % of a step. The reason is the span whose time exceeds the median of the other ranks the most.
///
/// What fixing it saves is simulated: its time between collectives becomes the median of the others'. If several ranks
/// share a GPU, those that wait leave more of it to the late one, and it saves less.
///
/// A link is slow if the transfers of a group of ranks take half as long again as those of other groups of its kind.
/// Work is uneven if half of the ranks wait for 10 % of a step, for another one from step to step, since it has more to
/// compute, as with sequences of different lengths.
///
/// Further tables have the collectives by group and operation, with NCCL's algorithm and bus bandwidth, and intervals
/// in which the differences between the clocks of hosts certainly are.
///
/// A folder of tables, which `kernspan tables` or the exporter `Parquet` wrote, is read with bounded memory, however
/// many ranks there are. It has the ranks and why they are late, but not the further tables.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  kernspan ranks runs/ddp
  kernspan ranks hang runs/ddp
  kernspan ranks --json rank0.json.gz rank1.json.gz
  kernspan ranks --run night-7 tables
  kernspan ranks --html ranks.html runs/ddp

Exit status: 0 success; 1 a file could not be read, or there are no collectives of several ranks; 2 usage error"
)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// Write an HTML page instead of tables
    #[arg(long, value_name = "FILE", conflicts_with_all = ["format", "json"])]
    html: Option<PathBuf>,
    #[command(flatten)]
    style: Style,
    #[command(subcommand)]
    command: Option<RanksCommand>,
}

#[derive(clap::Subcommand)]
enum RanksCommand {
    Hang(hang::Args),
}

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        if let Some(RanksCommand::Hang(hang)) = &self.command {
            return hang.run();
        }
        if let [folder] = self.inputs.files()
            && TableFolder::is_one(folder)
        {
            if self.html.is_some() {
                return Err(Fault::Usage("--html needs traces, not a folder of tables".to_owned()));
            }
            return self.compare_tables(folder);
        }
        self.inputs.check_output(self.html.as_deref())?;
        let read = self.inputs.read()?;
        let mut profiles: BTreeMap<u32, RankProfile> = BTreeMap::new();
        for trace in read.traces() {
            profiles.entry(trace.metadata().rank).or_default().add(&Analysis::of(trace));
        }
        let waits = RankWaits::of(&profiles.into_values().collect::<Vec<_>>());
        self.print(&waits, &Facts::of(read.traces(), &waits))?;
        read.end()
    }

    fn compare_tables(&self, folder: &Path) -> Result<(), Fault> {
        let ranks = compare_ranks(folder, self.inputs.run()).map_err(|error| Fault::Failed(error.to_string()))?;
        ranks.problems.iter().for_each(|problem| say(problem));
        self.print(&ranks.waits, &Facts::default())?;
        let is_unread = |problem: &String| problem.starts_with("cannot read ");
        if ranks.problems.iter().any(is_unread) { Err(Fault::Incomplete) } else { Ok(()) }
    }

    fn print(&self, waits: &RankWaits, facts: &Facts) -> Result<(), Fault> {
        if waits.ranks().len() < 2 {
            let message = "these are traces of one rank; give those of all ranks of a run";
            return Err(Fault::Failed(message.to_owned()));
        }
        if waits.ranks().iter().all(|rank| rank.collectives == 0) {
            let message = "no collectives were recorded in whole steps: GPU kernels of NCCL, such as all-reduce";
            return Err(Fault::Failed(message.to_owned()));
        }
        let said = said(waits, facts);
        let mut sections = vec![section(waits, facts, &said)];
        if self.style.format() != Format::Csv {
            let rows = self.style.rows(None, SPANS);
            sections.extend([collectives(facts), spans(facts, rows), clocks(facts)].into_iter().flatten());
        }
        match &self.html {
            Some(path) => page::page(waits, facts, &said).write(path, &self.style.plain(&sections)),
            None => self.style.print(&sections),
        }
    }
}

/// Returns a sentence for each late rank and host, and each slow link.
fn said(waits: &RankWaits, facts: &Facts) -> Vec<String> {
    let late = waits.late().iter().map(|late| {
        let is_in = |link: &&SlowLink| link.ranks.contains(&late.rank);
        match facts.slow_links.iter().find(is_in).filter(|_| late.cause.is_none()) {
            Some(_) => format!("{late}. Its link is slow"),
            None => late.to_string(),
        }
    });
    let hosts = facts.late_hosts.iter().map(ToString::to_string);
    let links = facts.slow_links.iter().map(ToString::to_string);
    let uneven = facts.uneven.iter().map(ToString::to_string);
    let mut said: Vec<_> = late.chain(hosts).chain(links).chain(uneven).collect();
    if waits.late().is_empty() && facts.late_hosts.is_empty() {
        said.insert(0, "no rank is late: none keeps all others waiting for 5 % of a step".to_owned());
    }
    said
}

fn section(waits: &RankWaits, facts: &Facts, said: &[String]) -> Section {
    let mut rows: Vec<_> = waits.ranks().iter().collect();
    if rows.len() > SHOWN {
        rows.sort_by_key(|rank| Reverse(rank.waited_for));
        rows.truncate(SHOWN);
        rows.sort_by_key(|rank| rank.rank);
    }
    let left_out = waits.ranks().len() - rows.len();
    let left_out = (left_out > 0).then(|| format!("{left_out} more ranks, which others wait less for: see --json"));
    let rows = rows.as_slice();
    let mut table = Table::default();
    table.number("Rank", rows, |rank| rank.rank.to_string());
    table.text("Host", rows, |rank| Some(rank.host.clone()).filter(|host| !host.is_empty())).droppable(1);
    table.number("Steps", rows, |rank| rank.steps.to_string()).droppable(2);
    table.number("Step", rows, |rank| units::column_time(rank.step));
    table.number("Waits for others", rows, |rank| units::column_time(rank.waits));
    table.number("Others wait for it", rows, |rank| units::column_time(rank.waited_for));
    table.number("Last in", rows, last);
    let warnings = waits.warnings().iter().chain(&facts.warnings).map(|warning| format!("warning: {warning}"));
    let is_late = |index: &usize| waits.late().iter().any(|late| late.rank == rows[*index].rank);
    Section {
        title: "Ranks".to_owned(),
        key: "ranks",
        table: Some(table),
        rows: waits.ranks().iter().map(json).collect(),
        members: vec![
            ("late", waits.late().iter().map(json).collect()),
            ("late_hosts", facts.late_hosts.iter().map(json).collect()),
            ("slow_links", facts.slow_links.iter().map(json).collect()),
            ("uneven_work", facts.uneven.iter().map(json).collect()),
            ("warnings", waits.warnings().iter().chain(&facts.warnings).map(json).collect()),
        ],
        below: left_out.into_iter().chain(said.iter().cloned()).chain(warnings).collect::<Vec<_>>().join("\n"),
        marked: (0..rows.len()).filter(is_late).collect(),
        ..Section::default()
    }
}

/// Returns at how many of its collectives a rank arrives last.
fn last(rank: &&RankWait) -> String {
    format!("{} of {}", rank.last, rank.collectives)
}

/// Returns the collectives by group and operation. Times are means of a step.
fn collectives(facts: &Facts) -> Option<Section> {
    let rows = &facts.groups;
    let mut table = Table::default();
    fn each(time: Duration, steps: u64) -> String {
        units::column_time(time.div_f64(steps.max(1) as f64))
    }
    fn rate(rate: Option<f64>) -> String {
        rate.map_or_else(String::new, units::bandwidth)
    }
    table.text("Group", rows, |it| Some(it.group.clone()).filter(|group| !group.is_empty())).droppable(1);
    table.text("Operation", rows, |it| Some(it.operation.to_string()));
    table.number("Ranks", rows, |it| it.ranks.to_string()).droppable(3);
    table.number("Count", rows, |it| it.count.to_string());
    table.number("Size", rows, |it| if it.bytes > 0 { units::bytes(it.bytes) } else { String::new() });
    table.number("Time", rows, |it| each(it.time, it.steps));
    table.number("Exposed", rows, |it| each(it.exposed, it.steps));
    table.number("Transfer", rows, |it| each(it.transfer, it.steps)).droppable(2);
    table.number("Algorithm", rows, |it| rate(it.algorithm_bandwidth()));
    table.number("Bus", rows, |it| rate(it.bus_bandwidth()));
    let below = "Time in a step: all, exposed (no kernel computes), and without waiting for other ranks. Bandwidths \
                 are as NCCL's tests define them.";
    (!rows.is_empty()).then(|| Section {
        title: "Collectives".to_owned(),
        key: "collectives",
        table: Some(table),
        rows: rows.iter().map(with_bandwidths).collect(),
        below: below.to_owned(),
        ..Section::default()
    })
}

/// Returns a row for programs, with bandwidths in bytes per second.
fn with_bandwidths(group: &CollectiveGroup) -> Value {
    let mut row = json(group);
    row["algorithm_bandwidth"] = group.algorithm_bandwidth().into();
    row["bus_bandwidth"] = group.bus_bandwidth().into();
    row
}

/// Returns the spans with the most exposed communication.
fn spans(facts: &Facts, most: usize) -> Option<Section> {
    let rows = &facts.spans[..facts.spans.len().min(most)];
    let mut table = Table::default();
    table.text("Span", rows, |it| Some(it.path.clone()).filter(|path| !path.is_empty()));
    table.number("Collectives", rows, |it| units::column_time(it.time));
    table.number("Exposed", rows, |it| units::column_time(it.exposed));
    (!rows.is_empty()).then(|| Section {
        title: "Communication by span".to_owned(),
        key: "communication",
        table: Some(table),
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    })
}

/// Returns how far clocks are apart, if there are several.
fn clocks(facts: &Facts) -> Option<Section> {
    let rows = &facts.clocks;
    let mut table = Table::default();
    table.text("Ranks", rows, |it| Some(first_of(&it.ranks)));
    table.text("Clock", rows, |it| Some(it.to_string()));
    (rows.len() > 1 && rows.iter().skip(1).any(|it| it.interval.is_some())).then(|| Section {
        title: "Clocks".to_owned(),
        key: "clocks",
        table: Some(table),
        rows: rows.iter().map(json).collect(),
        below: "No rank ends a collective before the last has begun it, so these bounds are certain.".to_owned(),
        ..Section::default()
    })
}

/// Writes ranks: the first ones, if there are many.
fn first_of(ranks: &[u32]) -> String {
    let names: Vec<_> = ranks.iter().take(8).map(ToString::to_string).collect();
    names.join(", ") + if ranks.len() > 8 { ", …" } else { "" }
}
