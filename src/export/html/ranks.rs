//! Ranks that differ: which one is slow, and the table of all of them.

use super::{
    cell::{Grid, Unit},
    packed::Names,
    steps::{BreakdownSum, Breakdowns},
};
use crate::{analysis::SLOW_RANK, report::units};
use std::time::Duration;

/// The ranks of a run side by side.
#[derive(Debug)]
pub(super) struct Ranks {
    /// A step of each rank on average, and without communication. Of several GPUs, the slowest counts.
    steps: Vec<(u32, (Duration, Duration))>,
    /// The median of the times without communication.
    typical: Duration,
    /// The slow ranks: those of the finding [`SlowRank`](crate::analysis::FindingKind::SlowRank).
    slow: Vec<u32>,
}

impl Ranks {
    /// Ranks differ if the longest step takes this many times longer than the shortest.
    const DIFFERENT: f64 = 1.05;

    pub(super) fn of(breakdowns: &Breakdowns) -> Self {
        let mut steps: Vec<(u32, (Duration, Duration))> = Vec::new();
        // In the order of the ranks.
        for (rank, _, sum) in breakdowns.iter() {
            let (mean, own) = (sum.mean(), sum.own());
            match steps.last_mut().filter(|(last, _)| *last == rank) {
                Some((_, slowest)) => *slowest = (mean.max(slowest.0), own.max(slowest.1)),
                None => steps.push((rank, (mean, own))),
            }
        }
        let mut own: Vec<_> = steps.iter().map(|(_, (_, own))| *own).collect();
        own.sort_unstable();
        let typical = own.get(own.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        let is_slow = |own: Duration| own.as_secs_f64() >= (1.0 + SLOW_RANK) * typical.as_secs_f64();
        let slow = steps.iter().filter(|(_, (_, own))| steps.len() > 1 && is_slow(*own)).map(|(rank, _)| *rank);
        Self { slow: slow.collect(), steps, typical }
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
        let shortest = self.steps.iter().min_by_key(|(_, (step, _))| *step)?;
        let longest = self.steps.iter().max_by_key(|(_, (step, _))| *step)?;
        if !self.are_several() {
            return None;
        }
        let (count, [low, high]) = (self.steps.len(), [shortest, longest].map(|(_, (step, _))| units::time(*step)));
        let is_different = longest.1.0 > shortest.1.0.mul_f64(Self::DIFFERENT);
        let text = match &self.slow[..] {
            [rank] => {
                let own = self.steps.iter().find(|(known, _)| known == rank)?.1.1;
                let percent = 100.0 * (own.as_secs_f64() / self.typical.as_secs_f64().max(1e-9) - 1.0);
                let [own, typical] = [own, self.typical].map(units::time);
                format!(
                    "Rank {rank} is slow: without communication, its step takes {own}; the median of all {count} ranks \
                     is {typical} (+{percent:.0} %). The others wait for it."
                )
            }
            [_, ..] => {
                let slow: Vec<_> = self.slow.iter().map(u32::to_string).collect();
                format!("Ranks {} are slow, and the others wait for them.", slow.join(", "))
            }
            _ if is_different => format!(
                "Ranks differ: a step takes between {low} (rank {}) and {high} (rank {}).",
                shortest.0, longest.0
            ),
            _ => format!("{count} ranks, none of them slow: a step takes between {low} and {high}."),
        };
        Some((text, is_different || !self.slow.is_empty()))
    }

    /// Returns the table: a step of each rank and GPU on average, with slow ranks marked.
    pub(super) fn table(&self, breakdowns: &Breakdowns, names: &mut Names) -> Grid {
        let is_slow = |rank: u32| self.slow.contains(&rank);
        let rows: Vec<(String, bool, BreakdownSum)> = breakdowns
            .iter()
            .map(|(rank, device, sum)| {
                let gpu = device.map_or_else(String::new, |device| format!(", GPU {device}"));
                (format!("rank {rank}{gpu}"), is_slow(rank), *sum)
            })
            .collect();
        let mut grid = Grid::default();
        grid.names("Rank", &rows, names, |(label, ..)| label);
        grid.column(("Note", Unit::Word, ""), &rows, |(_, slow, _)| if *slow { "slow" } else { "" }.to_owned());
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
    use crate::trace::{Trace, sample};
    use crate::{
        analysis::Analysis,
        export::html::{packed::Names, steps::Breakdowns},
    };
    use std::time::Duration;

    fn of(traces: &[Trace]) -> (Ranks, Breakdowns) {
        let mut breakdowns = Breakdowns::default();
        traces.iter().for_each(|trace| drop(breakdowns.add(&Analysis::of(trace), Duration::MAX)));
        (Ranks::of(&breakdowns), breakdowns)
    }

    #[test]
    fn alike_ranks_are_not_slow_and_one_rank_says_nothing() {
        let (ranks, _) = of(&sample::ranks());
        assert_eq!(ranks.summary().map(|(_, is_problem)| is_problem), Some(false));
        let (one, _) = of(&[sample::gpu_trace()]);
        assert_eq!(one.summary(), None);
    }

    #[test]
    fn a_rank_whose_own_work_takes_longer_is_named_and_marked() {
        let mut traces = sample::ranks();
        // The slow rank does not wait for the others: what was communication is compute there.
        for work in &mut traces[1].work {
            if let crate::trace::Detail::Kernel(kernel) = &mut work.detail {
                kernel.name = "gemm".into();
            }
        }
        let (ranks, breakdowns) = of(&traces);
        let (text, is_problem) = ranks.summary().unwrap();
        assert!(is_problem && text.starts_with("Rank 1 is slow: without communication, its step takes "), "{text}");
        let table = format!("{:?}", ranks.table(&breakdowns, &mut Names::default()));
        assert!(table.contains("marked: [1]"), "{table}");
    }
}
