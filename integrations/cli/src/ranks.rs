//! The command `ranks`: which rank of a distributed run the others wait for, and why it is late.

use crate::{
    fault::{Fault, say},
    hang,
    input::Inputs,
    json::json,
    output::{Section, Style},
};
use kernspan::{
    analysis::{Analysis, RankProfile, RankWait, RankWaits},
    report::{Table, units},
};
use kernspan_parquet::{TableFolder, compare_ranks};
use std::{cmp::Reverse, collections::BTreeMap, path::Path};

/// Print which rank the others wait for, and in which span it is late
///
/// Reads the traces of all ranks of a run, of kernspan or of PyTorch. Clocks need not be synchronised: a collective
/// lasts, on each rank, from the rank's arrival to the common end, so the last rank to arrive has the shortest one. The
/// difference is the time that the others wait for it. A rank is late if even the one that waits the least does so for
/// 5 % of a step. The reason is the span whose time exceeds the median of the other ranks the most.
///
/// A folder of tables, which `kernspan tables` or the exporter `Parquet` wrote, is read with bounded memory, however
/// many ranks there are.
///
/// If several ranks share a GPU, those that wait leave more of it to the late one, so that fixing it gains less than
/// the others wait.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  kernspan ranks runs/ddp
  kernspan ranks hang runs/ddp
  kernspan ranks --json rank0.json.gz rank1.json.gz
  kernspan ranks tables --run night-7

Exit status: 0 success; 1 a file could not be read, or there are no collectives of several ranks; 2 usage error"
)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
    /// The run, if a folder of tables has several; by default the one that began last
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
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
            return self.compare_tables(folder);
        }
        if self.run.is_some() {
            return Err(Fault::Usage("--run needs a folder of tables".to_owned()));
        }
        let read = self.inputs.read()?;
        let mut profiles: BTreeMap<u32, RankProfile> = BTreeMap::new();
        for trace in read.traces() {
            profiles.entry(trace.metadata().rank).or_default().add(&Analysis::of(trace));
        }
        self.print(&RankWaits::of(&profiles.into_values().collect::<Vec<_>>()))?;
        read.end()
    }

    fn compare_tables(&self, folder: &Path) -> Result<(), Fault> {
        let ranks = compare_ranks(folder, self.run.as_deref()).map_err(|error| Fault::Failed(error.to_string()))?;
        ranks.problems.iter().for_each(|problem| say(problem));
        self.print(&ranks.waits)?;
        let is_unread = |problem: &String| problem.starts_with("cannot read ");
        if ranks.problems.iter().any(is_unread) { Err(Fault::Incomplete) } else { Ok(()) }
    }

    fn print(&self, waits: &RankWaits) -> Result<(), Fault> {
        if waits.ranks().len() < 2 {
            let message = "these are traces of one rank; give those of all ranks of a run";
            return Err(Fault::Failed(message.to_owned()));
        }
        if waits.ranks().iter().all(|rank| rank.collectives == 0) {
            let message = "no collectives were recorded in whole steps: GPU kernels of NCCL, such as all-reduce";
            return Err(Fault::Failed(message.to_owned()));
        }
        self.style.print(&[section(waits)])
    }
}

/// The most ranks that a table has. JSON has all.
const SHOWN: usize = 64;

fn section(waits: &RankWaits) -> Section {
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
    let late: Vec<_> = waits.late().iter().map(ToString::to_string).collect();
    let warnings = waits.warnings().iter().map(|warning| format!("warning: {warning}"));
    let none = "no rank is late: none keeps all others waiting for 5 % of a step".to_owned();
    let said = if late.is_empty() { vec![none] } else { late };
    let is_late = |index: &usize| waits.late().iter().any(|late| late.rank == rows[*index].rank);
    Section {
        title: "Ranks".to_owned(),
        key: "ranks",
        table: Some(table),
        rows: waits.ranks().iter().map(json).collect(),
        members: vec![
            ("late", waits.late().iter().map(json).collect()),
            ("warnings", waits.warnings().iter().map(json).collect()),
        ],
        below: left_out.into_iter().chain(said).chain(warnings).collect::<Vec<_>>().join("\n"),
        marked: (0..rows.len()).filter(is_late).collect(),
        ..Section::default()
    }
}

/// Returns at how many of its collectives a rank arrives last.
fn last(rank: &&RankWait) -> String {
    format!("{} of {}", rank.last, rank.collectives)
}
