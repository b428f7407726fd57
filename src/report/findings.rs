//! Findings of all windows of a run, and of all its ranks.

use super::{step_times::StepTimes, units};
use crate::{
    analysis::{
        Analysis, Finding, FindingKind, OpenQuestion, QuestionKind, RankProfile, RankWaits, Remedy, Saving, SortedMap,
        StepTime, slow_ranks,
    },
    trace::Framework,
};
use std::{cmp::Reverse, time::Duration};

/// The findings of a run: those of its windows, merged by kind and place.
///
/// [`Report::findings`](crate::Report::findings) has them of a whole run. This is for a program that gets its windows
/// one by one and needs no report, such as an exporter.
///
/// ```
/// use kernspan::{Profiler, report::Findings};
///
/// let mut findings = Findings::default();
/// let (layer, profiler) = Profiler::builder()
///     .on_trace(move |window| {
///         findings.add(window);
///         if let Some(first) = findings.merged().first() {
///             eprintln!("so far: {}", first.title);
///         }
///     })
///     .build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Findings {
    ranks: SortedMap<u32, RankFindings>,
    steps: StepTimes,
}

/// The findings of a rank.
#[derive(Debug, Default)]
struct RankFindings {
    by_place: SortedMap<FindingPlace, FindingSum>,
    /// What is not known, by its kind and place.
    questions: SortedMap<(&'static str, Vec<String>), QuestionSum>,
    /// The number of whole steps in all windows that rules could look at.
    steps: u64,
    /// The simulated times of all these steps without the cost of recording.
    simulated: Duration,
    /// Nothing in a run of one process.
    profile: RankProfile,
    framework: Framework,
}

/// The kind of a finding, and its place.
type FindingPlace = (FindingKind, Vec<String>, Option<String>);

/// The findings of one kind at one place.
#[derive(Debug)]
struct FindingSum {
    /// The one that saves the most, whose words are used.
    first: Finding,
    /// Savings and times of all steps of the windows that have it.
    saving: Saving,
    remedies: Vec<Remedy>,
    /// The same of the time that titles name.
    each: Duration,
    steps: u64,
}

/// What is not known of one place, and the times of all steps of the windows that have it.
#[derive(Debug)]
struct QuestionSum {
    first: OpenQuestion,
    each: Duration,
}

impl Findings {
    /// Adds the findings of a window.
    pub fn add(&mut self, window: &Analysis<'_>) {
        self.steps.add(window);
        self.ranks.or_default(window.metadata().rank).add(window);
    }

    /// Returns the recorded steps of all windows.
    pub(super) fn steps(&self) -> &StepTimes {
        &self.steps
    }

    /// Returns the time of a step over all windows: that of the slowest rank, as the others wait for it.
    pub fn step_time(&self) -> Option<StepTime> {
        self.steps.slowest().map(|(_, step)| step)
    }

    /// Returns the time that a step would take without the cost of recording, by simulation.
    pub(super) fn step_without_recording(&self) -> Option<Duration> {
        let rank = self.ranks.get(&self.steps.slowest()?.0).filter(|rank| rank.steps > 0)?;
        Some(rank.each(rank.simulated))
    }

    /// Returns the findings, for each step of all windows, by the time that they save.
    ///
    /// A step takes as long as on the slowest rank, so that a finding is that of the rank which it costs the most, and
    /// not divided by the number of ranks.
    pub fn merged(&self) -> Vec<Finding> {
        let mut merged = match self.ranks.len() {
            0 | 1 => self.ranks.values().flat_map(RankFindings::merged).collect(),
            _ => self.across_ranks(),
        };
        // All speak of the step that the rest of the report speaks of, also if only some windows or ranks have them.
        if let Some(step) = self.step_time() {
            merged.iter_mut().for_each(|finding| finding.set_step(&step));
        }
        merged.retain(Finding::is_notable);
        merged.sort_by_key(|finding| Reverse(finding.rank()));
        merged
    }

    /// Returns what takes a notable part of steps and is not in one of these findings, each as a sentence or two, with
    /// what to record to learn more. Of several ranks, that of the slowest.
    pub(crate) fn open_questions(&self, findings: &[Finding]) -> Vec<String> {
        let Some((rank, step)) = self.steps.slowest() else { return Vec::new() };
        let (Some(rank), step) = (self.ranks.get(&rank), step.mean) else { return Vec::new() };
        let mut questions = rank.questions();
        questions.retain(|it| it.is_notable(step) && findings.iter().all(|finding| !is_about(finding, it)));
        questions.iter().map(|question| question.text(step)).collect()
    }

    fn across_ranks(&self) -> Vec<Finding> {
        let mut by_place: SortedMap<FindingPlace, Vec<(u32, Finding)>> = SortedMap::default();
        for (rank, findings) in self.ranks.iter() {
            for finding in findings.merged() {
                // The time that data takes is the same wherever it is waited for.
                let is_common = finding.kind == FindingKind::ExposedCollective;
                let key = if is_common { (finding.kind, Vec::new(), None) } else { key_of(&finding) };
                by_place.or_default(key).push((*rank, finding));
            }
        }
        let waits = self.rank_waits();
        let framework = self.ranks.values().next().map(|it| it.framework).unwrap_or_default();
        let slow = slow_ranks(&waits, framework, |rank, path| self.ranks.get(&rank)?.profile.longest(path));
        let one = |of_ranks: Vec<(u32, Finding)>| self.of_ranks(of_ranks, &waits);
        by_place.into_values().filter_map(one).chain(slow).collect()
    }

    /// Compares the ranks of a run of several processes.
    pub(crate) fn rank_waits(&self) -> RankWaits {
        let profiles: Vec<_> = self.ranks.values().map(|it| &it.profile).filter(|it| it.has_steps()).collect();
        RankWaits::of(&profiles)
    }

    /// Returns the finding of the rank that it costs the most, of those that have it.
    fn of_ranks(&self, of_ranks: Vec<(u32, Finding)>, waits: &RankWaits) -> Option<Finding> {
        let likely = |(_, finding): &&(u32, Finding)| finding.saving.likely;
        let is_common = of_ranks.len() == self.ranks.len();
        if of_ranks.first()?.1.kind == FindingKind::ExposedCollective {
            // Others have waited for a rank that came late, which is a finding of its own.
            let (rank, finding) = of_ranks.iter().min_by_key(likely).filter(|_| is_common)?;
            let evidence = format!("This is rank {rank}, which waits for the others for the shortest time.");
            return Some(with_evidence(finding.clone(), evidence));
        }
        let (rank, finding) = of_ranks.iter().max_by_key(likely)?;
        let largest = finding.saving.likely;
        let others = || of_ranks.iter().filter(|(other, _)| other != rank);
        let next = others().map(|(_, finding)| finding.saving.likely).max().unwrap_or_default();
        let are_alike =
            is_common && others().all(|(_, it)| it.saving.likely.as_secs_f64() >= ALIKE * largest.as_secs_f64());
        let mut finding = with_evidence(
            finding.clone(),
            match (of_ranks.len(), next) {
                (1, _) => format!("Only rank {rank} of {} has it.", self.ranks.len()),
                (count, next) => {
                    let (all, next) = (self.ranks.len(), units::time(next));
                    format!("{count} of {all} ranks have it; it costs rank {rank} the most, and the next one {next}.")
                }
            },
        );
        if !are_alike {
            finding.title += &format!(", on rank {rank}");
        }
        // It goes on waiting for slower ranks.
        let waiting = waits.ranks().iter().find(|it| it.rank == *rank);
        if !is_common && waiting.is_some_and(|it| it.waits.as_secs_f64() >= WAITS * it.step.as_secs_f64()) {
            finding.saving.least = Duration::ZERO;
            finding.remedies.iter_mut().for_each(|remedy| remedy.saving.least = Duration::ZERO);
        }
        Some(finding)
    }
}

/// Savings of two ranks are alike if the smaller one is at least this part of the larger one.
const ALIKE: f64 = 0.8;
/// A rank that waits for others for at least this part of a step is not the one that they wait for: the part by which
/// a rank is late, see [`RankComparison`](crate::analysis::RankComparison).
const WAITS: f64 = 0.05;

/// Whether a finding answers a question: it is about the same span or, like the question, about the CPUs.
fn is_about(finding: &Finding, question: &OpenQuestion) -> bool {
    match question.kind {
        QuestionKind::BusyMachine { .. } => finding.kind == FindingKind::CpuSaturated,
        _ => finding.path == question.path,
    }
}

fn with_evidence(mut finding: Finding, evidence: String) -> Finding {
    finding.evidence.push(evidence);
    finding
}

fn key_of(finding: &Finding) -> FindingPlace {
    (finding.kind, finding.path.clone(), finding.location.clone())
}

/// The same of windows of one rank. A window has one finding at most about all waits or launches, which names the place
/// that has most of them: another one in each window.
fn key_of_window(finding: &Finding) -> FindingPlace {
    match finding.kind {
        FindingKind::InputBound | FindingKind::HostSync | FindingKind::LaunchBound => (finding.kind, Vec::new(), None),
        _ => key_of(finding),
    }
}

impl RankFindings {
    /// The most places that are kept.
    const PLACES: usize = 256;

    fn add(&mut self, window: &Analysis<'_>) {
        let steps = window.steps().iter().filter(|step| !step.cut().any()).count() as u64;
        if window.metadata().world_size > 1 && steps > 0 {
            self.profile.add(window);
            self.framework = window.framework();
        }
        let factor = u32::try_from(steps).unwrap_or(u32::MAX);
        let Some(found) = window.found() else { return };
        self.steps += steps;
        self.simulated += found.step * factor;
        for finding in found.findings.iter().chain(&found.minor) {
            let key = key_of_window(finding);
            if self.by_place.len() >= Self::PLACES && !self.by_place.contains_key(&key) {
                continue;
            }
            let sum = self.by_place.or_insert_with(key, || FindingSum {
                first: finding.clone(),
                saving: Saving::default(),
                remedies: Vec::new(),
                each: Duration::ZERO,
                steps: 0,
            });
            add_saving(&mut sum.saving, finding.saving, factor);
            for remedy in &finding.remedies {
                let known = sum.remedies.iter().position(|it| it.change == remedy.change);
                let index = known.unwrap_or_else(|| {
                    sum.remedies.push(Remedy { saving: Saving::default(), ..remedy.clone() });
                    sum.remedies.len() - 1
                });
                add_saving(&mut sum.remedies[index].saving, remedy.saving, factor);
            }
            sum.each += finding.each.unwrap_or_default() * factor;
            sum.steps += steps;
            if finding.saving.likely > sum.first.saving.likely {
                sum.first = finding.clone();
            }
        }
        for question in &found.questions {
            let key = (question.kind.name(), question.path.clone());
            if self.questions.len() < Self::PLACES || self.questions.contains_key(&key) {
                let new = || QuestionSum { first: question.clone(), each: Duration::ZERO };
                self.questions.or_insert_with(key, new).each += question.each * factor;
            }
        }
    }

    /// Returns the findings for each step of all windows.
    fn merged(&self) -> Vec<Finding> {
        // A window without the finding has next to nothing to save.
        let saving = |of: Saving| {
            let [least, likely, most] = [of.least, of.likely, of.most].map(|of| self.each(of));
            Saving::new(least, likely, most)
        };
        let merge = |sum: &FindingSum| {
            let mut finding = Finding {
                saving: saving(sum.saving),
                remedies: sum.remedies.iter().map(|it| Remedy { saving: saving(it.saving), ..it.clone() }).collect(),
                steps: sum.steps,
                ..sum.first.clone()
            };
            finding.restate(self.each(sum.each));
            if sum.steps < self.steps {
                finding.evidence.push(format!("It is in windows of {} of the {} steps.", sum.steps, self.steps));
            }
            if finding.saving != sum.first.saving {
                let all = self.steps;
                finding.evidence.push(format!(
                    "The saving is the mean of all {all} steps; other numbers are of the window that has most of it."
                ));
            }
            finding
        };
        self.by_place.values().map(merge).collect()
    }

    /// Returns what is not known, for each step of all windows.
    fn questions(&self) -> Vec<OpenQuestion> {
        let merge = |sum: &QuestionSum| OpenQuestion { each: self.each(sum.each), ..sum.first.clone() };
        self.questions.values().map(merge).collect()
    }

    /// Returns the time of one of all steps that were looked at.
    fn each(&self, sum: Duration) -> Duration {
        sum / u32::try_from(self.steps.max(1)).unwrap_or(u32::MAX)
    }
}

/// Adds what is saved in each of this many steps.
fn add_saving(sum: &mut Saving, saving: Saving, steps: u32) {
    sum.least += saving.least * steps;
    sum.likely += saving.likely * steps;
    sum.most += saving.most * steps;
}

#[cfg(test)]
mod tests;
