//! Facts from the collectives of several ranks: clocks, bandwidths, exposed communication, late hosts,
//! slow links and uneven work.

use kernspan::{
    Trace,
    analysis::{
        Analysis, ClockOffset, ClockOffsets, CollectiveCall, CollectiveGroup, LateHost, LinkComparison, RankWaits,
        SlowLink, UnevenWork, WorkBalance, collective_calls, collective_groups, late_hosts,
    },
    trace::{Span, Timestamp},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Facts about the ranks of a run; none of tables.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) clocks: Vec<ClockOffset>,
    pub(super) groups: Vec<CollectiveGroup>,
    pub(super) spans: Vec<SpanCommunication>,
    pub(super) late_hosts: Vec<LateHost>,
    pub(super) slow_links: Vec<SlowLink>,
    /// If no single rank or host is late.
    pub(super) uneven: Option<UnevenWork>,
    pub(super) warnings: Vec<String>,
    /// The time in collectives that no kernel hides, in a step of each rank.
    pub(super) exposed: BTreeMap<u32, Duration>,
    /// The time that a rank waits for others, by rank and step.
    pub(super) waits: BTreeMap<u32, BTreeMap<u64, Duration>>,
}

/// The collectives of a span in a step, over all ranks on average.
#[derive(serde::Serialize)]
pub(super) struct SpanCommunication {
    pub(super) path: String,
    pub(super) time: Duration,
    pub(super) exposed: Duration,
}

/// The steps and collectives of one rank.
#[derive(Default)]
struct OneRank {
    /// The time in collectives by the path of their span, and the part of it that is exposed.
    spans: BTreeMap<String, (Duration, Duration)>,
    host: String,
    steps: BTreeMap<u64, (Timestamp, Timestamp)>,
    calls: Vec<CollectiveCall>,
}

impl Facts {
    pub(super) fn of<'a>(traces: impl Iterator<Item = &'a Trace>, waits: &RankWaits) -> Self {
        let mut ranks: BTreeMap<u32, OneRank> = BTreeMap::new();
        let mut balance = WorkBalance::default();
        for trace in traces {
            ranks.entry(trace.metadata().rank).or_default().add(trace);
            balance.add_window(&Analysis::of(trace));
        }
        let calls = || ranks.iter().map(|(rank, it)| (*rank, it.host.as_str(), it.calls.as_slice()));
        let middle = ranks.values().next().and_then(|it| it.calls.get(it.calls.len() / 2)).map(|call| call.start);
        let clocks = ClockOffsets::of(calls());
        let step = waits.ranks().iter().map(|rank| rank.step).max().unwrap_or_default();
        let exposed = |it: &OneRank| {
            let steps = u32::try_from(it.steps.len()).unwrap_or(u32::MAX).max(1);
            it.calls.iter().map(|call| call.exposed).sum::<Duration>() / steps
        };
        let late_hosts = late_hosts(&calls().collect::<Vec<_>>(), step);
        let of_ranks = || calls().map(|(rank, _, calls)| (rank, calls));
        balance.add_waits(of_ranks());
        let none_is_late = waits.late().is_empty() && late_hosts.is_empty();
        let host = |rank| ranks.get(&rank).map_or("", |it| it.host.as_str());
        Self {
            slow_links: LinkComparison::of(of_ranks()).slow(step, host),
            uneven: balance.uneven().filter(|_| none_is_late),
            clocks: clocks.offsets(middle.unwrap_or_default()),
            groups: collective_groups(ranks.values().map(|it| it.calls.as_slice())),
            spans: communication(&ranks),
            late_hosts,
            warnings: clocks.warnings(middle.unwrap_or_default()),
            exposed: ranks.iter().map(|(rank, it)| (*rank, exposed(it))).collect(),
            waits: waits_by_step(&ranks),
        }
    }
}

impl OneRank {
    fn add(&mut self, trace: &Trace) {
        self.host.clone_from(&trace.metadata().host);
        let mut new: BTreeSet<u64> = BTreeSet::new();
        for step in trace.steps().iter().filter(|step| !step.cut().any()) {
            // A step that is there already is of another run, which is reported elsewhere.
            if self.steps.insert(step.number(), (step.start(), step.end())).is_none() {
                new.insert(step.number());
            }
        }
        let first = self.calls.len();
        self.calls.extend(collective_calls(trace).into_iter().filter(|call| new.contains(&call.step)));
        for call in &self.calls[first..] {
            let span = call.span.map(|id| trace.span(id));
            let mut path: Vec<_> = span.into_iter().flat_map(Span::stack).map(Span::name).collect();
            path.reverse();
            let sum = self.spans.entry(path.join(" > ")).or_default();
            *sum = (sum.0 + call.duration(), sum.1 + call.exposed);
        }
    }
}

/// Returns the communication of spans, those first that are exposed the longest.
fn communication(ranks: &BTreeMap<u32, OneRank>) -> Vec<SpanCommunication> {
    let steps = ranks.values().map(|it| it.steps.len()).sum::<usize>().max(1) as f64;
    let mut sums: BTreeMap<&str, (Duration, Duration)> = BTreeMap::new();
    for (path, (time, exposed)) in ranks.values().flat_map(|it| &it.spans) {
        let sum = sums.entry(path).or_default();
        *sum = (sum.0 + *time, sum.1 + *exposed);
    }
    let span = |(path, (time, exposed)): (&str, (Duration, Duration))| SpanCommunication {
        path: path.to_owned(),
        time: time.div_f64(steps),
        exposed: exposed.div_f64(steps),
    };
    let mut spans: Vec<_> = sums.into_iter().map(span).collect();
    spans.sort_by_key(|span| Reverse(span.exposed));
    spans
}

/// Returns how long each rank waits for others in each step.
fn waits_by_step(ranks: &BTreeMap<u32, OneRank>) -> BTreeMap<u32, BTreeMap<u64, Duration>> {
    let mut shortest: BTreeMap<_, Duration> = BTreeMap::new();
    for call in ranks.values().flat_map(|it| &it.calls) {
        let known = shortest.entry((call.step, &call.group, call.number)).or_insert(call.duration());
        *known = (*known).min(call.duration());
    }
    let of_rank = |it: &OneRank| {
        let mut steps: BTreeMap<u64, Duration> = it.steps.keys().map(|step| (*step, Duration::ZERO)).collect();
        for call in &it.calls {
            let least = shortest.get(&(call.step, &call.group, call.number)).copied().unwrap_or_default();
            *steps.entry(call.step).or_default() += call.duration().saturating_sub(least);
        }
        steps
    };
    ranks.iter().map(|(rank, it)| (*rank, of_rank(it))).collect()
}
