//! Some threads of the step idle while another one works.
//!
//! A trace does not say which threads work for the step. It is plain only where the steps' thread hands work to several
//! threads and waits for all of them: they are in spans of one callsite whenever it is in a certain span, and never
//! else. Threads that load data in advance, write logs or serve something do not look like that.

use super::{
    super::{
        finding::FindingKind,
        intervals::{Interval, Intervals},
        quantile::lower_median,
        sorted::{SortedMap, SortedSet},
    },
    waits_for::WaitsFor,
    window::{Candidate, Window},
    words,
};
use crate::trace::{CallsiteId, Span, SpanId, ThreadId, Trace};
use std::time::Duration;

/// The part of a call in which at least one of the threads works.
const COVERED: f64 = 0.8;
/// The work of a thread is uneven from this many times the mean on, in all but a few calls: threads of an even split
/// differ by chance, each time another way.
const UNEVEN: f64 = 1.5;
const FEW: f64 = 0.1;
/// The part of a step that uneven work costs at the least.
const LEAST_UNEVEN: f64 = 0.05;
/// The part of a step that one thread works alone at the least: each program has some of that.
const LEAST_ALONE: f64 = 0.1;
/// The part of that time in which other threads may be busy.
const BUSY: f64 = 0.1;

/// Threads that share the work of calls of the steps' thread.
struct Pool<'a> {
    /// The callsite of the spans that they are in.
    work: Span<'a>,
    threads: SortedSet<ThreadId>,
    /// The calls on the steps' thread during which they work, and the time that each thread works in it.
    calls: SortedMap<SpanId, SortedMap<ThreadId, Duration>>,
}

impl Pool<'_> {
    /// The most threads that work in one call. There may be more in all, if each call starts its own.
    fn size(&self) -> usize {
        self.calls.values().map(|shares| shares.len()).max().unwrap_or(0)
    }
}

/// Finds threads that idle while the longest part of shared work is done, or while the steps' thread works alone.
pub(super) fn idle_threads(window: &Window<'_>) -> Vec<Candidate> {
    let pools = pools(window);
    let mut candidates: Vec<_> = pools.iter().filter_map(|pool| uneven(window, pool)).collect();
    candidates.extend(pools.iter().max_by_key(|pool| pool.size()).and_then(|pool| alone(window, pool)));
    candidates
}

/// Returns the threads that share work, by the callsites of the spans that they are in.
fn pools<'a>(window: &Window<'a>) -> Vec<Pool<'a>> {
    let trace = window.trace();
    let own: Vec<Span<'a>> = trace.spans().filter(|span| span.track().thread() == window.thread).collect();
    let mut works: SortedMap<CallsiteId, Vec<Span<'a>>> = SortedMap::default();
    for span in trace.spans().filter(|span| span.step_id().is_some_and(|step| window.is_whole(step))) {
        let is_other = span.track().thread() != window.thread && span.parent().is_none();
        if is_other && span.input_stage().is_none() && WaitsFor::of(span).is_none() {
            works.or_default(span.callsite_id()).push(span);
        }
    }
    works.into_values().filter_map(|works| pool(window, &own, &works)).collect()
}

/// Returns the threads that are in these spans, if they share work.
fn pool<'a>(window: &Window<'a>, own: &[Span<'a>], works: &[Span<'a>]) -> Option<Pool<'a>> {
    let work = *works.first()?;
    let mut pool = Pool { work, threads: SortedSet::default(), calls: SortedMap::default() };
    // The steps' thread may do a share of the work itself.
    let own_shares = own.iter().filter(|span| span.callsite_id() == work.callsite_id());
    let shares: Vec<_> = works.iter().chain(own_shares).copied().collect();
    for &share in &shares {
        let thread = share.track().thread();
        match around(own, share) {
            Some(call) => *pool.calls.or_default(call).or_default(thread) += share.duration(),
            None if thread == window.thread => {}
            None => return None,
        }
        pool.threads.insert(thread);
    }
    let trace = window.trace();
    let callsites: SortedSet<_> = pool.calls.keys().map(|&call| trace.span(call).callsite_id()).collect();
    let is_shared = callsites.len() == 1 && pool.size() > 1 && !window.is_rare(pool.calls.keys().next().copied());
    let interval = |span: &Span<'_>| Interval { start: span.start(), end: span.end(), requested: None };
    let busy = Intervals::new(shares.iter().map(interval).collect());
    let is_covered = |call: &SpanId| {
        let call = trace.span(*call);
        busy.covered(call.start(), call.end()) >= call.duration().mul_f64(COVERED)
    };
    (is_shared && pool.calls.keys().all(is_covered)).then_some(pool)
}

/// Returns the innermost span of the steps' thread that is around a span, and not a share of the same work.
fn around(own: &[Span<'_>], share: Span<'_>) -> Option<SpanId> {
    let after = own.partition_point(|span| span.start() <= share.start());
    let last = own[..after].last()?;
    let is_around = |span: &Span<'_>| span.end() >= share.end() && span.callsite_id() != share.callsite_id();
    last.stack().find(is_around).map(Span::id)
}

/// Finds calls in which one thread works for much longer than the others.
fn uneven(window: &Window<'_>, pool: &Pool<'_>) -> Option<Candidate> {
    let trace = window.trace();
    let threads = u32::try_from(pool.size()).unwrap_or(u32::MAX).max(1);
    let mean = |shares: &SortedMap<ThreadId, Duration>| shares.values().sum::<Duration>() / threads;
    let longest = |shares: &SortedMap<ThreadId, Duration>| shares.values().max().copied().unwrap_or_default();
    let even = pool.calls.values().filter(|shares| longest(shares) < mean(shares).mul_f64(UNEVEN)).count();
    if even as f64 > FEW * pool.calls.len() as f64 {
        return None;
    }
    // There may be fewer cores than threads, which the trace does not say: at the least, half of them work at a time.
    let on_half = |shares: &SortedMap<ThreadId, Duration>| shares.values().sum::<Duration>() / threads.div_ceil(2);
    let (mut costs, mut least) = (window.costs(), window.costs());
    let mut saved = Vec::new();
    for (index, item) in window.items().filter(|(_, item)| item.thread == window.thread) {
        let stack = item.span.map(|id| trace.span(id)).into_iter().flat_map(Span::stack);
        let Some((call, shares)) = stack.filter_map(|span| Some((span, pool.calls.get(&span.id())?))).next() else {
            continue;
        };
        let saved_by = |even: Duration| {
            let part = longest(shares).saturating_sub(even).as_secs_f64() / call.duration().as_secs_f64().max(1e-9);
            (item.nanos() as f64 * part.min(1.0)).round() as u64
        };
        let nanos = saved_by(mean(shares));
        costs.scale_item(index, (item.nanos() - nanos) as f64);
        least.scale_item(index, (item.nanos() - saved_by(on_half(shares))) as f64);
        saved.push((index, nanos));
    }
    let each = window.each_step(saved);
    if (each as f64) < LEAST_UNEVEN * window.median.as_nanos() as f64 {
        return None;
    }
    let call = pool.calls.keys().next().copied();
    let typical = |time: &dyn Fn(&SortedMap<ThreadId, Duration>) -> Duration| {
        words::time(lower_median(pool.calls.values().map(time)).unwrap_or_default())
    };
    Some(Candidate {
        title: format!(
            "the work of {} is uneven: one of {threads} threads takes {} where the mean is {}",
            words::place(trace, call),
            typical(&longest),
            typical(&mean)
        ),
        span: call,
        evidence: vec![format!(
            "The threads share it in {}. An even split would save {} of a step.",
            words::place(trace, Some(pool.work.id())),
            words::nanos(each)
        )],
        ranges: window.span_ranges(pool.calls.keys().copied()),
        least: Some(least),
        ..Candidate::new(FindingKind::IdleThreads, costs)
    })
}

/// Finds the span in which the steps' thread works for the longest while all other threads of a pool idle.
fn alone(window: &Window<'_>, pool: &Pool<'_>) -> Option<Candidate> {
    let trace = window.trace();
    let of_pool = window.spans_of_others().filter(|span| pool.threads.contains(&span.track().thread()));
    let interval = |span: Span<'_>| Interval { start: span.start(), end: span.end(), requested: None };
    let busy = Intervals::new(of_pool.map(interval).collect());
    let sharing: SortedSet<CallsiteId> = around_calls(trace, pool);
    let alone = window.items().filter(|(_, item)| {
        let Some(span) = item.span.map(|id| trace.span(id)).filter(|_| item.thread == window.thread) else {
            return false;
        };
        let is_other = |span: Span<'_>| WaitsFor::of(span).is_some() || pool.calls.contains_key(&span.id());
        window.input_of(item.span).is_none() && !sharing.contains(&span.callsite_id()) && !span.stack().any(is_other)
    });
    let groups = window.groups(alone.map(|(index, item)| (index, item.span, item.nanos())));
    let items = &window.simulation.items;
    let each = |members: &[usize]| window.each_step(members.iter().map(|&item| (item, items[item].nanos())));
    let group = groups.iter().max_by_key(|group| each(&group.members))?;
    let nanos = each(&group.members);
    let beside: Duration = group.members.iter().map(|&item| busy.covered(items[item].start, items[item].end)).sum();
    let is_alone = beside.as_nanos() as f64 <= BUSY * group.nanos as f64;
    if !is_alone || (nanos as f64) < LEAST_ALONE * window.median.as_nanos() as f64 {
        return None;
    }
    // More threads are as efficient here as they are where they share work.
    let threads = pool.size() as f64;
    let worked: Duration = pool.calls.values().flat_map(SortedMap::values).sum();
    let taken: Duration = pool.calls.keys().map(|&call| trace.span(call).duration()).sum();
    let efficiency = (worked.as_secs_f64() / taken.as_secs_f64().max(1e-9) / threads).min(1.0);
    let with = |speedup: f64| {
        let mut costs = window.costs();
        group.members.iter().for_each(|&item| costs.scale_item(item, items[item].nanos() as f64 / speedup.max(1.0)));
        costs
    };
    let place = words::place(trace, group.span);
    let each = words::nanos(nanos);
    let call = words::place(trace, pool.calls.keys().next().copied());
    Some(Candidate {
        title: format!("one thread works for {each} of each step in {place}, while the threads of {call} idle"),
        each: Some(nanos),
        span: group.span,
        evidence: vec![
            format!("{threads} threads share the work of {call}."),
            format!("There, each of them works for {:.0} % of the time.", 100.0 * efficiency),
        ],
        ranges: window.item_ranges(&group.members),
        least: Some(with(2.0 * efficiency)),
        most: Some(with(threads)),
        ..Candidate::new(FindingKind::IdleThreads, with(threads * efficiency))
    })
}

/// The callsites of spans around shared work, and of the work itself.
fn around_calls(trace: &Trace, pool: &Pool<'_>) -> SortedSet<CallsiteId> {
    let calls = pool.calls.keys().flat_map(|&call| trace.span(call).stack());
    calls.map(Span::callsite_id).chain([pool.work.callsite_id()]).collect()
}
