//! The command `ranks`: which rank of a distributed run the others wait for, and why it is late.

use crate::{
    fault::Fault,
    hang,
    input::Inputs,
    json::json,
    output::{Section, Style},
};
use kernspan::{
    analysis::{Analysis, RankProfile, RankWait, RankWaits},
    report::{Table, units},
};
use std::collections::BTreeMap;

/// Print which rank the others wait for, and in which span it is late
///
/// Reads the traces of all ranks of a run, of kernspan or of PyTorch. Clocks need not be synchronised: a collective
/// lasts, on each rank, from the rank's arrival to the common end, so the last rank to arrive has the shortest one. The
/// difference is the time that the others wait for it. A rank is late if even the one that waits the least does so for
/// 5 % of a step. The reason is the span whose time exceeds the median of the other ranks the most.
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

Exit status: 0 success; 1 a file could not be read, or there are no collectives of several ranks; 2 usage error"
)]
pub(crate) struct Args {
    #[command(flatten)]
    inputs: Inputs,
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
        let read = self.inputs.read()?;
        let mut profiles: BTreeMap<u32, RankProfile> = BTreeMap::new();
        for trace in read.traces() {
            profiles.entry(trace.metadata().rank).or_default().add(&Analysis::of(trace));
        }
        if profiles.len() < 2 {
            let message = "these are traces of one rank; give those of all ranks of a run";
            return Err(Fault::Failed(message.to_owned()));
        }
        let waits = RankWaits::of(&profiles.into_values().collect::<Vec<_>>());
        if waits.ranks().iter().all(|rank| rank.collectives == 0) {
            let message = "no collectives were recorded in whole steps: GPU kernels of NCCL, such as all-reduce";
            return Err(Fault::Failed(message.to_owned()));
        }
        self.style.print(&[section(&waits)])?;
        read.end()
    }
}

fn section(waits: &RankWaits) -> Section {
    let rows = waits.ranks();
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
        rows: rows.iter().map(json).collect(),
        members: vec![
            ("late", waits.late().iter().map(json).collect()),
            ("warnings", waits.warnings().iter().map(json).collect()),
        ],
        below: said.into_iter().chain(warnings).collect::<Vec<_>>().join("\n"),
        marked: (0..rows.len()).filter(is_late).collect(),
        ..Section::default()
    }
}

/// Returns at how many of its collectives a rank arrives last.
fn last(rank: &RankWait) -> String {
    format!("{} of {}", rank.last, rank.collectives)
}
