//! Sequences of kernels that a loop of the program launches again and again.

use super::{
    super::{
        kinds::is_launch,
        phase::{Phase, PhaseMarks},
        simulation::Costs,
    },
    window::Window,
    words::{self, owner},
};
use crate::trace::{Span, SpanId, StepId, ThreadId, Trace, Work};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;

/// The least number of repetitions that make a loop. Two or three are common without one, as the products for queries,
/// keys and values.
const REPEATS: usize = 4;
/// The most kernels in a repetition: a search takes time in proportion.
const LONGEST: usize = 1024;
/// The most bytes of a copy that goes with its repetition, such as Candle's sizes and strides. Larger ones are data.
const SMALL_COPY: u64 = 64 << 10;
/// The nanoseconds that a kernel takes to begin and end, however little it does: the shortest kernels of the recordings
/// in `tests/fixtures/trainings` take 1 µs.
const EMPTY: f64 = 1_000.0;
/// The part of a repetition that one before or after has in common with it if that belongs to the loop: the first one
/// often has nothing to add to, or the last one ends otherwise.
const COMMON: f64 = 0.75;
/// How the names of spans end, but for a number, that are layers of a stack. Each layer needs the result of the one
/// before, so that they cannot be one.
const LAYERS: [&str; 6] = ["layer", "layers", "block", "blocks", "stage", "stages"];

/// Repetitions of one sequence of kernels in a row.
pub(super) struct Loop {
    /// The tasks in the order of their launches, and the items that launched them.
    tasks: Vec<usize>,
    items: Vec<usize>,
    /// The number of kernels in a repetition.
    period: usize,
    /// The repetitions before and after these that differ a little, and the launches that they have in common.
    similar: usize,
    extra: Vec<Extra>,
    phase: Phase,
}

/// A launch in a repetition that differs a little.
struct Extra {
    task: usize,
    /// The item that launched it, and that of the launch before.
    item: usize,
    before: usize,
    /// Which of the kernels of a repetition it is.
    position: usize,
}

impl Loop {
    fn repeats(&self) -> usize {
        self.items.len() / self.period + self.similar
    }

    /// The launches that are not needed if the first repetition is for all of them.
    fn removed(&self) -> usize {
        self.items.len() - self.period
    }
}

/// A kernel and its launch.
struct LoopLaunch<'a> {
    item: usize,
    task: usize,
    work: Work<'a>,
    part: (ThreadId, Option<StepId>, Phase),
    /// Kernels with the same name and grid have the same number.
    kernel: usize,
}

/// Finds the loops of the steps. Those of the backward pass and the optimizer follow from those of the forward pass,
/// and have as many repetitions, or a multiple.
pub(super) fn loops(window: &Window<'_>) -> Vec<Loop> {
    let mut numbers = FxHashMap::default();
    let mut launches = Vec::new();
    let marks = PhaseMarks::of(window.trace());
    for (item, of_thread, _) in window.calls().filter(|(_, _, call)| is_launch(*call)) {
        let Some(task) = window.task_of(item) else { continue };
        let work = window.trace().work_of(window.simulation.tasks[task].work);
        let Some(kernel) = work.kernel() else { continue };
        let next = numbers.len();
        let kernel = *numbers.entry((&*kernel.name, kernel.grid)).or_insert(next);
        launches.push(LoopLaunch {
            item,
            task,
            work,
            part: (of_thread.thread, of_thread.step, marks.phase(work.span())),
            kernel,
        });
    }
    let mut loops = Vec::new();
    for row in launches.chunk_by(|one, next| one.part == next.part) {
        let kernels: Vec<usize> = row.iter().map(|launch| launch.kernel).collect();
        let mut runs = periodic(&kernels);
        runs.retain(|run| !are_layers(window.trace(), row[run.start].work, row[run.start + run.period].work));
        let runs = fewest_left(runs);
        let mut free = 0;
        for (index, run) in runs.iter().enumerate() {
            let past = runs.get(index + 1).map_or(row.len(), |next| next.start);
            let members = || row[run.start..run.end()].iter();
            let mut it = Loop {
                tasks: members().map(|launch| launch.task).collect(),
                items: members().map(|launch| launch.item).collect(),
                period: run.period,
                similar: 0,
                extra: Vec::new(),
                phase: row[0].part.2,
            };
            let more = run.period + run.period / 4;
            let (start, end) = (run.start.saturating_sub(more).max(free), (run.end() + more).min(past));
            free = run.end();
            for part in [start..run.start, run.end()..end] {
                let common = common(&kernels[run.start..][..run.period], &kernels[part.clone()]);
                if common.len() as f64 >= COMMON * run.period as f64 {
                    free = free.max(part.end);
                    it.similar += 1;
                    it.extra.extend(common.into_iter().map(|(position, at)| {
                        let launch = &row[part.start + at];
                        let before = (part.start + at).checked_sub(1).map_or(launch.item, |before| row[before].item);
                        Extra { task: launch.task, item: launch.item, before, position }
                    }));
                }
            }
            loops.push(it);
        }
    }
    let forward: Vec<usize> = loops.iter().filter(|it| it.phase == Phase::Forward).map(Loop::repeats).collect();
    // The first or last repetition may differ too much to be counted.
    let follows = |repeats: usize| forward.iter().any(|of| repeats.abs_diff(*of) <= 1 || repeats.is_multiple_of(*of));
    loops.retain(|it| it.phase == Phase::Forward || follows(it.repeats()));
    loops
}

/// A stretch of a sequence that repeats its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PeriodicRun {
    start: usize,
    period: usize,
    repeats: usize,
}

impl PeriodicRun {
    fn end(self) -> usize {
        self.start + self.period * self.repeats
    }

    fn removed(self) -> usize {
        self.period * (self.repeats - 1)
    }
}

/// Returns all stretches of a sequence that repeat their beginning often enough.
fn periodic(sequence: &[usize]) -> Vec<PeriodicRun> {
    let mut runs = Vec::new();
    for period in 1..=(sequence.len() / REPEATS).min(LONGEST) {
        let mut start = 0;
        for index in 0..=sequence.len() - period {
            if sequence.get(index + period) != Some(&sequence[index.min(sequence.len() - 1)]) {
                let repeats = (index - start) / period + 1;
                if repeats >= REPEATS {
                    runs.push(PeriodicRun { start, period, repeats });
                }
                start = index + 1;
            }
        }
    }
    runs
}

/// Returns those of the runs that do not overlap and together leave the fewest launches: loops inside others, or those
/// around them.
fn fewest_left(mut runs: Vec<PeriodicRun>) -> Vec<PeriodicRun> {
    runs.sort_by_key(|run| (run.end(), Reverse(run.period)));
    // For the first so many runs, the most launches removed, and whether the last of them is one of the chosen.
    let mut best = vec![(0, false)];
    let before = |run: &PeriodicRun| runs.partition_point(|other| other.end() <= run.start);
    for run in &runs {
        let with = best[before(run)].0 + run.removed();
        let without = best[best.len() - 1].0;
        best.push((with.max(without), with > without));
    }
    let (mut chosen, mut count) = (Vec::new(), runs.len());
    while count > 0 {
        if best[count].1 {
            chosen.push(runs[count - 1]);
            count = before(&runs[count - 1]);
        } else {
            count -= 1;
        }
    }
    chosen.reverse();
    chosen
}

/// Returns the positions of the longest common subsequence of two sequences in each of them.
fn common(one: &[usize], other: &[usize]) -> Vec<(usize, usize)> {
    // The lengths for what is left of both from here on.
    let mut lengths = vec![vec![0_u32; other.len() + 1]; one.len() + 1];
    for (first, second) in (0..one.len()).rev().flat_map(|first| (0..other.len()).rev().map(move |it| (first, it))) {
        lengths[first][second] = match one[first] == other[second] {
            true => lengths[first + 1][second + 1] + 1,
            false => lengths[first + 1][second].max(lengths[first][second + 1]),
        };
    }
    let (mut first, mut second, mut pairs) = (0, 0, Vec::new());
    while first < one.len() && second < other.len() {
        if one[first] == other[second] {
            pairs.push((first, second));
            (first, second) = (first + 1, second + 1);
        } else if lengths[first + 1][second] >= lengths[first][second + 1] {
            first += 1;
        } else {
            second += 1;
        }
    }
    pairs
}

/// Whether two pieces of work are in spans of the user that are layers of a stack, one after the other.
fn are_layers(trace: &Trace, one: Work<'_>, next: Work<'_>) -> bool {
    let stack = |work: Work<'_>| -> Vec<SpanId> {
        let mut stack: Vec<_> = work.span().into_iter().flat_map(Span::stack).map(Span::id).collect();
        stack.reverse();
        stack
    };
    let (one, next) = (stack(one), stack(next));
    let Some((one, next)) = one.iter().zip(&next).find(|(one, next)| one != next) else { return false };
    let (one, next) = (trace.span(*one).name(), trace.span(*next).name());
    let stem = |name: &str| name.trim_end_matches(|end: char| end.is_ascii_digit() || ".-_#".contains(end)).to_owned();
    // Layers of the same number belong to models that are run one after the other.
    stem(one) == stem(next)
        && (one != next || stem(one) == one)
        && LAYERS.iter().any(|layer| stem(one).to_ascii_lowercase().ends_with(layer))
}

/// Returns the costs if each loop is run once, for all of its members.
pub(super) fn batched(window: &Window<'_>, loops: &[Loop]) -> Costs {
    let mut costs = window.costs();
    for it in loops {
        for index in 0..it.period {
            let extra = it.extra.iter().filter(|extra| extra.position == index).map(|extra| extra.task);
            let members: Vec<usize> = it.tasks[index..].iter().step_by(it.period).copied().chain(extra).collect();
            let nanos = |task: &usize| window.trace().work_of(window.simulation.tasks[*task].work).duration();
            let nanos = || members.iter().map(|task| nanos(task).as_nanos() as f64);
            // A kernel for all members takes as long as theirs together, or less if one does not fill the GPU.
            let all: f64 = nanos().map(|nanos| (nanos - EMPTY).max(0.0)).sum();
            let longest = nanos().fold(0.0, f64::max);
            members.iter().skip(1).for_each(|&task| costs.remove_task(task));
            costs.set_task(members[0], (EMPTY + all * filled(window, members[0])).max(longest) as u64);
        }
        let pairs = it.items[it.period - 1..].windows(2).map(|pair| (pair[0], pair[1]));
        for (before, launch) in pairs.chain(it.extra.iter().map(|extra| (extra.before, extra.item))) {
            for item in before + 1..=launch {
                let is_data = window.copy_of(item).is_some_and(|copy| copy.bytes > SMALL_COPY);
                if window.simulation.items[item].waited() || is_data {
                    continue;
                }
                costs.set_item(item, 0);
                window.task_of(item).into_iter().for_each(|task| costs.remove_task(task));
            }
        }
    }
    costs
}

/// Returns the part of the GPU that a kernel fills, of what it can fill with a larger grid.
fn filled(window: &Window<'_>, task: usize) -> f64 {
    let work = window.trace().work_of(window.simulation.tasks[task].work);
    let device = work.kernel().zip(window.device(work));
    let occupancy = device.and_then(|(kernel, device)| device.occupancy(kernel));
    occupancy.map_or(1.0, |it| (it.percent / it.theoretical_percent.max(1.0)).min(1.0))
}

/// Returns the number of kernels that loops launch.
pub(super) fn launches(loops: &[Loop]) -> usize {
    loops.iter().map(|it| it.items.len() + it.extra.len()).sum()
}

/// Says what the loop of the forward pass does that launches most.
pub(super) fn describe(window: &Window<'_>, loops: &[Loop]) -> Option<String> {
    let longest = loops.iter().filter(|it| it.phase == Phase::Forward).max_by_key(|it| it.removed())?;
    let span = |task: usize| window.trace().work_of(window.simulation.tasks[task].work).span();
    let around = |task: usize| span(task).into_iter().flat_map(Span::stack).map(Span::id);
    let (first, last) = (longest.tasks[0], longest.tasks[longest.tasks.len() - 1]);
    let common = around(first).find(|id| around(last).any(|other| other == *id));
    let common = owner(window.trace(), common);
    let place = common.map_or(String::new(), |_| format!(" in {}", words::place(window.trace(), common)));
    let kernels = match longest.period {
        1 => "same kernel runs".to_owned(),
        count => format!("same {count} kernels run"),
    };
    Some(format!("The {kernels} {} times in a row{place}.", longest.repeats()))
}

#[cfg(test)]
mod tests {
    use super::{PeriodicRun, common, fewest_left, periodic};

    #[test]
    fn loops_inside_others_are_chosen_if_they_leave_less() {
        // Four layers, each with eight heads of two kernels, and a kernel before them.
        let layer = [vec![0], [1, 2].repeat(8)].concat();
        let inner = fewest_left(periodic(&layer.repeat(4)));
        assert_eq!(inner.len(), 4);
        assert_eq!(inner[1], PeriodicRun { start: 18, period: 2, repeats: 8 });
        // Eight members, each with four equal layers among six others.
        let member = [vec![1; 4], (2..8).collect()].concat();
        assert_eq!(fewest_left(periodic(&member.repeat(8))), [PeriodicRun { start: 0, period: 10, repeats: 8 }]);
        assert_eq!(fewest_left(periodic(&[1, 2, 1, 2, 1, 2, 3])), [], "three are not a loop");
        assert_eq!(fewest_left(periodic(&[])), []);
    }

    #[test]
    fn a_repetition_may_lack_a_kernel() {
        assert_eq!(common(&[1, 2, 3, 4], &[9, 1, 2, 4]), [(0, 1), (1, 2), (3, 3)]);
        assert_eq!(common(&[1], &[]), []);
    }
}
