//! Ranks that differ: which one is late, and the table of all of them.

use super::{
    cell::{Grid, Unit},
    packed::Names,
};
use crate::{
    analysis::{LateRank, RankWaits, StepPart},
    report::{GpuStepParts, Report, units},
};
use std::time::Duration;

/// The ranks of a run side by side.
#[derive(Debug)]
pub(super) struct Ranks {
    gpus: Vec<GpuStepParts>,
    /// The time of a step of each rank.
    steps: Vec<(u32, Duration)>,
    late: Vec<LateRank>,
}

impl Ranks {
    /// Ranks differ if the longest step takes this many times longer than the shortest.
    const DIFFERENT: f64 = 1.05;

    pub(super) fn of(report: &Report) -> Self {
        let gpus = report.steps().parts_by_gpu();
        let mut steps: Vec<_> = gpus.iter().map(|row| (row.rank, row.parts.total())).collect();
        // The parts of each GPU of a rank add up to its step.
        steps.dedup_by_key(|(rank, _)| *rank);
        let waits: RankWaits = report.rank_waits();
        Self { gpus, steps, late: waits.late().to_vec() }
    }

    /// Returns the number of GPUs of all ranks; a rank without counts for one.
    pub(super) fn gpus(&self) -> usize {
        self.gpus.len()
    }

    /// Returns whether any rank used a GPU.
    pub(super) fn have_gpu(&self) -> bool {
        self.gpus.iter().any(|row| row.device.is_some())
    }

    /// Returns the names of the parts of a step, in the order of [`StepPart::ALL`].
    pub(super) fn part_names(&self) -> impl Iterator<Item = &'static str> {
        let has_gpu = self.have_gpu();
        StepPart::ALL.into_iter().map(move |part| match (part, has_gpu) {
            (StepPart::Input, true) => "input, GPU idle",
            (StepPart::Synchronizing, true) => "synchronizing, GPU idle",
            (StepPart::Launching, true) => "launching, GPU idle",
            (StepPart::Host, true) => "host, GPU idle",
            (StepPart::Other, true) => "outside of spans, GPU idle",
            (StepPart::Other, false) => "outside of spans",
            (part, _) => part.as_str(),
        })
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
    pub(super) fn table(&self, names: &mut Names) -> Grid {
        let is_late = |rank: u32| self.late.iter().any(|late| late.rank == rank);
        let rows = &self.gpus;
        let label = |row: &GpuStepParts| {
            let gpu = row.device.map_or_else(String::new, |device| format!(", GPU {device}"));
            format!("rank {}{gpu}", row.rank)
        };
        let labels: Vec<String> = rows.iter().map(label).collect();
        let mut grid = Grid::default();
        grid.names("Rank", &labels, names, |label| label);
        grid.column(("Note", Unit::Word, ""), rows, |row| if is_late(row.rank) { "late" } else { "" }.to_owned());
        grid.column(("Steps", Unit::Number, "without outliers"), rows, |row| row.steps);
        grid.column(("Step", Unit::Time, "mean"), rows, |row| row.parts.total());
        let help = "a step without communication, in which ranks wait for each other";
        let own = |row: &GpuStepParts| row.parts.total().saturating_sub(row.parts.exposed_communication);
        grid.column(("Own time", Unit::Total, help), rows, own);
        for (part, title) in StepPart::ALL.into_iter().zip(self.part_names()) {
            grid.column((title, Unit::Time, "mean of a step"), rows, |row| row.parts.of(part));
        }
        grid.mark(rows.iter().enumerate().filter(|(_, row)| is_late(row.rank)).map(|(index, _)| index).collect());
        grid
    }
}

#[cfg(test)]
mod tests {
    use super::Ranks;
    use crate::{
        export::html::packed::Names,
        report::Report,
        trace::{Trace, sample},
    };

    fn of(traces: &[Trace]) -> Ranks {
        Ranks::of(&Report::of(traces))
    }

    #[test]
    fn alike_ranks_are_not_late_and_one_rank_says_nothing() {
        let ranks = of(&sample::late_ranks(&[(100, 1000); 3]));
        assert_eq!(ranks.summary().map(|(_, is_problem)| is_problem), Some(false));
        assert_eq!(of(&[sample::gpu_trace()]).summary(), None);
    }

    #[test]
    fn the_rank_that_others_wait_for_is_named_and_marked() {
        let ranks = of(&sample::late_ranks(&[(100, 1000), (100, 1400), (100, 1000)]));
        let (text, is_problem) = ranks.summary().unwrap();
        let start = "Of 3 ranks, rank 1 is late: the others wait for it for 400 µs of a step";
        assert!(is_problem && text.starts_with(start), "{text}");
        let table = format!("{:?}", ranks.table(&mut Names::default()));
        assert!(table.contains("marked: [1]"), "{table}");
    }
}
