//! Ranks that differ: which one is late, and the table of all of them.

use super::{
    cell::{Grid, Unit},
    packed::Names,
    steps::{BreakdownSum, Breakdowns},
};
use crate::{
    analysis::{LateRank, RankWaits},
    report::units,
};
use std::time::Duration;

/// The ranks of a run side by side.
#[derive(Debug)]
pub(super) struct Ranks {
    /// A step of each rank on average. Of several GPUs, the slowest counts.
    steps: Vec<(u32, Duration)>,
    late: Vec<LateRank>,
}

impl Ranks {
    /// Ranks differ if the longest step takes this many times longer than the shortest.
    const DIFFERENT: f64 = 1.05;

    pub(super) fn of(breakdowns: &Breakdowns, waits: &RankWaits) -> Self {
        let mut steps: Vec<(u32, Duration)> = Vec::new();
        // In the order of the ranks.
        for (rank, _, sum) in breakdowns.iter() {
            match steps.last_mut().filter(|(last, _)| *last == rank) {
                Some((_, slowest)) => *slowest = (*slowest).max(sum.mean()),
                None => steps.push((rank, sum.mean())),
            }
        }
        Self { steps, late: waits.late().to_vec() }
    }

    /// Returns how many there are.
    pub(super) fn count(&self) -> usize {
        self.steps.len()
    }

    /// Returns whether there are several.
    pub(super) fn are_several(&self) -> bool {
        self.count() > 1
    }

    /// Returns what to know about the ranks before anything else, if there are several, and whether it is a problem.
    pub(super) fn summary(&self) -> Option<(String, bool)> {
        let shortest = self.steps.iter().min_by_key(|(_, step)| *step)?;
        let longest = self.steps.iter().max_by_key(|(_, step)| *step)?;
        if !self.are_several() {
            return None;
        }
        let (count, [low, high]) = (self.steps.len(), [shortest, longest].map(|(_, step)| units::time(*step)));
        let is_different = longest.1 > shortest.1.mul_f64(Self::DIFFERENT);
        let text = match &self.late[..] {
            [late] => format!("Of {count} ranks, {late}."),
            [_, ..] => {
                let late: Vec<_> = self.late.iter().map(|late| late.rank.to_string()).collect();
                format!("Ranks {} are late, and the others wait for them.", late.join(", "))
            }
            _ if is_different => format!(
                "Ranks differ: a step takes between {low} (rank {}) and {high} (rank {}).",
                shortest.0, longest.0
            ),
            _ => format!("{count} ranks, none of them late: a step takes between {low} and {high}."),
        };
        Some((text, is_different || !self.late.is_empty()))
    }

    /// Returns the table: a step of each rank and GPU on average, with late ranks marked.
    pub(super) fn table(&self, breakdowns: &Breakdowns, names: &mut Names) -> Grid {
        let is_late = |rank: u32| self.late.iter().any(|late| late.rank == rank);
        let rows: Vec<(String, bool, BreakdownSum)> = breakdowns
            .iter()
            .map(|(rank, device, sum)| {
                let gpu = device.map_or_else(String::new, |device| format!(", GPU {device}"));
                (format!("rank {rank}{gpu}"), is_late(rank), *sum)
            })
            .collect();
        let mut grid = Grid::default();
        grid.names("Rank", &rows, names, |(label, ..)| label);
        grid.column(("Note", Unit::Word, ""), &rows, |(_, late, _)| if *late { "late" } else { "" }.to_owned());
        grid.column(("Steps", Unit::Number, ""), &rows, |(.., sum)| u64::from(sum.steps));
        grid.column(("Step", Unit::Time, "mean"), &rows, |(.., sum)| sum.mean());
        let help = "a step without communication, in which ranks wait for each other";
        grid.column(("Own time", Unit::Total, help), &rows, |(.., sum)| sum.own());
        for (part, title) in Breakdowns::PARTS.iter().enumerate() {
            grid.column((title, Unit::Time, "mean of a step"), &rows, |(.., sum)| -> Duration { sum.means()[part] });
        }
        grid.mark(rows.iter().enumerate().filter(|(_, row)| row.1).map(|(index, _)| index).collect());
        grid
    }
}

#[cfg(test)]
mod tests {
    use super::Ranks;
    use crate::{
        analysis::Analysis,
        export::html::{packed::Names, steps::Breakdowns},
        report::Report,
        trace::{Trace, sample},
    };
    use std::time::Duration;

    fn of(traces: &[Trace]) -> (Ranks, Breakdowns) {
        let mut breakdowns = Breakdowns::default();
        traces.iter().for_each(|trace| drop(breakdowns.add(&Analysis::of(trace), Duration::MAX)));
        (Ranks::of(&breakdowns, &Report::of(traces).rank_waits()), breakdowns)
    }

    #[test]
    fn alike_ranks_are_not_late_and_one_rank_says_nothing() {
        let (ranks, _) = of(&sample::late_ranks(&[(100, 1000); 3]));
        assert_eq!(ranks.summary().map(|(_, is_problem)| is_problem), Some(false));
        let (one, _) = of(&[sample::gpu_trace()]);
        assert_eq!(one.summary(), None);
    }

    #[test]
    fn the_rank_that_others_wait_for_is_named_and_marked() {
        let (ranks, breakdowns) = of(&sample::late_ranks(&[(100, 1000), (100, 1400), (100, 1000)]));
        let (text, is_problem) = ranks.summary().unwrap();
        let start = "Of 3 ranks, rank 1 is late: the others wait for it for 400 µs of a step";
        assert!(is_problem && text.starts_with(start), "{text}");
        let table = format!("{:?}", ranks.table(&breakdowns, &mut Names::default()));
        assert!(table.contains("marked: [1]"), "{table}");
    }
}
