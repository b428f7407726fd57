//! Steps that take longer than the others.

use super::{
    super::{
        finding::{FindingKind, TimeRange},
        kinds::is_load,
        quantile::lower_median,
        simulation::Costs,
        sorted::{SortedMap, SortedSet},
    },
    window::{Candidate, Window, total},
    words,
};
use crate::trace::{CallsiteId, Span, SpanId, StepId};

/// The least number of steps that have outliers.
const STEPS: usize = 5;
/// The number of steps that are named.
const NAMED: usize = 5;

/// Finds steps that take longer than the others, and the spans that only they have, or else the place at which they
/// spend more time, such as calls that compile kernels. The first step of a run is left
/// out: it begins with the recording, so that what the program does before its loop is part of it.
pub(super) fn outlier_steps(window: &Window<'_>) -> Vec<Candidate> {
    let steps = window.simulation.steps.len();
    if steps < STEPS {
        return Vec::new();
    }
    let trace = window.trace();
    let is_later = |step: StepId| window.is_whole(step) && trace.steps()[step.index()].number() > 0;
    // Spans that less than half of the steps have, and what is in them.
    let mut rare: SortedMap<&str, (SpanId, u64)> = SortedMap::default();
    let mut having: SortedSet<StepId> = SortedSet::default();
    let mut costs = window.costs();
    for (index, item) in window.simulation.items.iter().enumerate() {
        let Some(step) = item.step.filter(|&step| is_later(step)) else { continue };
        let Some(span) = window.outermost_rare(item.span) else { continue };
        costs.set_item(index, 0);
        rare.or_insert_with(trace.span(span).name(), || (span, 0)).1 += item.nanos();
        having.insert(step);
    }
    for (index, _, work) in window.all_tasks() {
        let Some(step) = work.step_id().filter(|&step| is_later(step)) else { continue };
        if window.is_rare(work.span().map(Span::id)) {
            costs.remove_task(index);
            having.insert(step);
        }
    }
    let slow: Vec<StepId> = window.slow.iter().copied().filter(|&step| is_later(step)).collect();
    if slow.is_empty() || slow.len() * 2 > steps {
        return Vec::new();
    }
    let by_rare =
        rare.iter().max_by_key(|(_, (_, nanos))| *nanos).filter(|_| slow.iter().any(|it| having.contains(it)));
    let (span, cause, evidence) = match by_rare {
        Some(&(name, (span, nanos))) => {
            let evidence = format!("`{name}` takes {} in all steps.", words::nanos(nanos));
            (Some(span), words::place(trace, Some(span)), evidence)
        }
        None if window.simulation.is_host_only() => return Vec::new(),
        None => {
            let Some(excess) = excess(window, &slow, &mut costs) else { return Vec::new() };
            let cause = match excess.span {
                _ if excess.is_loading => "loading or compiling kernels".to_owned(),
                // Nobody can act on that: the machine may have been busy.
                None => return Vec::new(),
                span => words::place(trace, span),
            };
            let more = words::nanos(excess.nanos / slow.len() as u64);
            (excess.span, cause, format!("They spend {more} more there than the others."))
        }
    };
    let count = slow.len();
    let slow: Vec<_> = slow.iter().map(|step| &trace.steps()[step.index()]).collect();
    let verb = if count == 1 { "takes" } else { "take" };
    let numbers: Vec<_> = slow.iter().take(NAMED).map(|step| step.number().to_string()).collect();
    let more = match count.saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    vec![Candidate {
        title: format!("{count} of {steps} steps {verb} longer than the others, by {cause}"),
        span,
        evidence: vec![
            format!("The median step takes {}.", words::time(window.median)),
            format!("Slow steps: {}{more}.", numbers.join(", ")),
            evidence,
        ],
        ranges: slow.iter().map(|step| TimeRange::new(trace, step.start(), step.end())).collect(),
        ..Candidate::new(FindingKind::OutlierSteps, costs)
    }]
}

/// The time that slow steps spend at one place beyond what the others do.
struct Excess {
    span: Option<SpanId>,
    is_loading: bool,
    nanos: u64,
}

/// Finds the place at which slow steps spend the most time beyond what the others do, and has it take as long as in
/// those.
fn excess(window: &Window<'_>, slow: &[StepId], costs: &mut Costs) -> Option<Excess> {
    let trace = window.trace();
    let mut places: SortedMap<(bool, Option<CallsiteId>), SortedMap<StepId, Vec<usize>>> = SortedMap::default();
    for (index, item) in window.simulation.items.iter().enumerate() {
        let Some(step) = item.step.filter(|&step| window.is_whole(step)) else { continue };
        let is_loading = item.call.is_some_and(|id| is_load(trace.api_call(id)));
        let callsite = item.span.filter(|_| !is_loading).map(|id| trace.span(id).callsite_id());
        places.or_default((is_loading, callsite)).or_default(step).push(index);
    }
    let sum = |items: Option<&Vec<usize>>| {
        total(items.into_iter().flatten().map(|&item| window.simulation.items[item].nanos()))
    };
    let beyond = |steps: &SortedMap<StepId, Vec<usize>>| {
        let typical = lower_median(window.regular().map(|step| sum(steps.get(&step)))).unwrap_or(0);
        (typical, total(slow.iter().map(|step| sum(steps.get(step)).saturating_sub(typical))))
    };
    let &((is_loading, _), ref steps) = places.iter().max_by_key(|(_, steps)| beyond(steps).1)?;
    let (typical, nanos) = beyond(steps);
    for items in slow.iter().filter_map(|step| steps.get(step)) {
        let part = (typical as f64 / sum(Some(items)).max(1) as f64).min(1.0);
        items
            .iter()
            .for_each(|&item| costs.set_item(item, (window.simulation.items[item].nanos() as f64 * part) as u64));
    }
    let longest = slow.iter().filter_map(|step| steps.get(step)).flatten();
    let longest = longest.max_by_key(|&&item| window.simulation.items[item].nanos())?;
    (nanos > 0).then_some(Excess { span: window.simulation.items[*longest].span, is_loading, nanos })
}
