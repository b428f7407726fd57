//! The requests of a profiler, as the layer reports them and as background threads read them.

use super::{
    RecordedSpan, RequestKind, Requests, ServiceLevel, Slo, SlowRequest,
    error_budget::{ErrorBudget, SloCount},
    open_request::{KindIndex, OpenRequest, concerns_requests},
    request_labels::RequestLabels,
    request_shards::{EndedRequest, RequestNote, RequestShards},
    request_tally::KindTally,
    slow_requests::SlowSpan,
    slow_traces::SlowTraces,
};
use crate::{
    analysis::Analysis,
    clock::{Clock, Ticks},
    span_table::{RegistryId, SpanTable},
    trace::{FieldData, Step, Timestamp, Value, convention},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tracing::{Metadata, field::FieldSet};

/// Counts and times every request. Threads note what happens; [`collect`](Self::collect) adds it up.
#[derive(Debug)]
pub(crate) struct RequestRecorder {
    clock: Clock,
    began: Instant,
    kinds: Vec<NamedKind>,
    open: SpanTable<OpenRequest>,
    /// The open requests for which the table has no room.
    more_open: Mutex<FxHashMap<RegistryId, OpenRequest>>,
    /// The number of these.
    more: AtomicUsize,
    shards: RequestShards,
    /// Held while notes are added up, so that whoever asks next finds them in the tallies.
    collecting: Mutex<()>,
    tallies: Mutex<Tallies>,
}

/// What threads have noted, added up.
#[derive(Debug)]
struct Tallies {
    kinds: Vec<KindTally>,
    slos: Vec<SloCount>,
    budgets: Vec<ErrorBudget>,
    /// For each kind.
    slow: Vec<Option<SlowTraces>>,
}

/// The spans of the slowest requests of each kind, as the records of a window have them.
#[derive(Debug)]
pub(crate) struct SlowSpans(Vec<Vec<SlowSpan>>);

#[derive(Debug)]
struct NamedKind {
    name: String,
    labels: RequestLabels,
}

impl RequestRecorder {
    /// The number of open requests that are found without a common lock, 3 MiB. There can be more.
    const OPEN: usize = 1 << 14;

    /// Creates the recorder for these kinds, and objectives for them.
    pub(crate) fn new(clock: Clock, kinds: &[RequestKind], slos: Vec<Slo>) -> Self {
        let named = |kind: &RequestKind| NamedKind { name: kind.name.clone(), labels: RequestLabels::new(kind) };
        let slow = kinds.iter().map(|kind| kind.slow.as_ref().map(SlowTraces::new)).collect();
        let kinds: Vec<_> = kinds.iter().map(named).collect();
        let kind_of = |slo: &Slo| kinds.iter().position(|kind| kind.name == slo.kind);
        let slos: Vec<_> = slos.into_iter().filter_map(|slo| Some((kind_of(&slo)? as KindIndex, slo))).collect();
        let tallies = Tallies {
            kinds: kinds.iter().map(|kind| KindTally::new(&kind.labels)).collect(),
            slos: slos.iter().map(|(kind, slo)| SloCount::new(slo, *kind)).collect(),
            budgets: slos.into_iter().map(|(_, slo)| ErrorBudget::new(slo)).collect(),
            slow,
        };
        Self {
            clock,
            began: Instant::now(),
            shards: RequestShards::new(kinds.len()),
            kinds,
            open: SpanTable::new(Self::OPEN),
            more_open: Mutex::default(),
            more: AtomicUsize::new(0),
            collecting: Mutex::default(),
            tallies: Mutex::new(tallies),
        }
    }

    // For the layer.

    /// Returns the kind of requests that spans of this name are, if they are requests.
    #[inline]
    pub(crate) fn kind_of(&self, name: &str) -> Option<KindIndex> {
        self.kinds.iter().position(|kind| kind.name == name).map(|index| index as KindIndex)
    }

    /// Begins the request of a new span.
    pub(crate) fn begin(
        &self,
        id: RegistryId,
        kind: KindIndex,
        callsite: &'static Metadata<'static>,
        start: Ticks,
        fields: &[FieldData],
    ) {
        let names = callsite.fields();
        let mut request = OpenRequest { kind, names: Some(names), start, ..OpenRequest::default() };
        request.take_fields(self.labels(kind), named(names, fields));
        if !self.open.insert(id, |open| *open = request) {
            self.lock_more().insert(id, request);
            self.more.fetch_add(1, Ordering::Relaxed);
        }
        self.shards.begin(kind);
    }

    /// Takes fields that were recorded after the span of a request was created.
    pub(crate) fn update(&self, id: RegistryId, fields: &[FieldData]) {
        self.with(id, |request| {
            if let Some(names) = request.names {
                let labels = self.labels(request.kind);
                request.take_fields(labels, named(names, fields));
            }
        });
    }

    /// Whether an event with these fields may say something about a request.
    #[inline]
    pub(crate) fn wants_event(&self, names: &FieldSet) -> bool {
        concerns_requests(names)
    }

    /// Takes an event. `spans` are those that it happened in, innermost first.
    pub(crate) fn take_event(&self, names: &FieldSet, fields: &[FieldData], spans: impl Iterator<Item = RegistryId>) {
        let now = self.clock.now();
        for (depth, id) in spans.enumerate() {
            let mut note = None;
            let found = self.with(id, |request| {
                for (name, value) in named(names, fields) {
                    match name {
                        convention::REQUEST_TOKENS => {
                            let gap = value.as_u64().and_then(|tokens| request.facts.take_tokens(tokens, now));
                            note = gap.map(|gap| (request.kind, request.labels, gap)).or(note);
                        }
                        convention::REQUEST_BATCH_SIZE => request.facts.set_batch(value),
                        // An error in a span inside may well be handled there.
                        _ if depth == 0 => request.facts.take_field(name, value),
                        _ => {}
                    }
                }
            });
            if let Some((kind, labels, gap)) = note {
                self.note(RequestNote::Tokens(kind, self.labels(kind).group(labels), gap));
            }
            if found.is_some() {
                return;
            }
        }
    }

    /// Ends the request of a span that has closed, if it is one. `now` is called only then, as reading the clock costs
    /// more than finding out.
    pub(crate) fn end(&self, id: RegistryId, now: impl FnOnce() -> Ticks) {
        let removed = self.open.remove_with(id, |open| *open).or_else(|| {
            if self.more.load(Ordering::Relaxed) == 0 {
                return None;
            }
            let request = self.lock_more().remove(&id)?;
            self.more.fetch_sub(1, Ordering::Relaxed);
            Some(request)
        });
        if let Some(OpenRequest { kind, start, labels, facts, .. }) = removed {
            let end = now();
            let group = self.labels(kind).group(labels);
            self.note(RequestNote::Ended(EndedRequest { id, kind, group, start, end, facts }));
        }
    }

    fn with<R>(&self, id: RegistryId, f: impl FnOnce(&mut OpenRequest) -> R) -> Option<R> {
        if let Some(mut request) = self.open.lock(id) {
            return Some(f(&mut request));
        }
        if self.more.load(Ordering::Relaxed) == 0 { None } else { self.lock_more().get_mut(&id).map(f) }
    }

    fn note(&self, note: RequestNote) {
        self.shards.note(note, |notes| self.add(&mut self.lock_tallies(), notes));
    }

    fn labels(&self, kind: KindIndex) -> &RequestLabels {
        &self.kinds[usize::from(kind)].labels
    }

    fn lock_more(&self) -> MutexGuard<'_, FxHashMap<RegistryId, OpenRequest>> {
        self.more_open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_tallies(&self) -> MutexGuard<'_, Tallies> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // For background threads, and for programs that ask.

    /// Adds up what threads have noted.
    pub(crate) fn collect(&self) {
        let _collecting = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut in_flight = vec![0; self.kinds.len()];
        // Not locked meanwhile: a thread whose list is full locks its list first.
        self.shards.collect(&mut in_flight, |notes| self.add(&mut self.lock_tallies(), notes));
        self.lock_tallies().kinds.iter_mut().zip(in_flight).for_each(|(tally, open)| tally.set_in_flight(open));
    }

    fn add(&self, tallies: &mut Tallies, notes: &[RequestNote]) {
        for note in notes {
            let (RequestNote::Ended(EndedRequest { kind, .. }) | RequestNote::Tokens(kind, ..)) = note;
            tallies.kinds[usize::from(*kind)].add(note, self.labels(*kind), &self.clock);
            if let RequestNote::Ended(ended) = note {
                tallies.slos.iter_mut().for_each(|slo| slo.add(ended, &self.clock));
                tallies.slow[usize::from(*kind)].iter_mut().for_each(|slow| slow.add(ended, &self.clock));
            }
        }
    }

    /// Finds the spans of the slowest requests among the records of a window: the ids of spans that were entered, and
    /// when.
    pub(crate) fn slow_spans(&self, enters: impl Iterator<Item = (RegistryId, Ticks)>) -> SlowSpans {
        // What threads have noted last is about this window.
        self.collect();
        let kinds = self.lock_tallies().kinds.iter().map(|tally| tally.slowest.unknown().collect()).collect();
        let mut found = SlowSpans(kinds);
        let ids: FxHashSet<_> = found.0.iter().flatten().map(SlowSpan::id).collect();
        for (id, at) in enters.filter(|(id, _)| ids.contains(id)) {
            found.0.iter_mut().flatten().for_each(|span| span.note_enter(id, at));
        }
        found
    }

    /// Adds what a window says about requests: their GPU time, and which of its spans are those of the slowest, with
    /// the files that were written for it. `moment` turns ticks into times of the window.
    pub(crate) fn add_window(
        &self,
        window: &Analysis<'_>,
        SlowSpans(slow): SlowSpans,
        files: &[PathBuf],
        moment: impl Fn(Ticks) -> Timestamp,
    ) {
        let trace = window.trace();
        for (index, (kind, slow)) in self.kinds.iter().zip(slow).enumerate() {
            // Not locked meanwhile, as threads of the program may need the lock.
            if trace.work().len() > 0 {
                let times = window.request_gpu_times(&kind.name);
                self.lock_tallies().kinds[index].gpu.add(&times);
            }
            for slow in slow {
                let Some(at) = slow.entered().map(&moment) else { continue };
                let mut spans = trace.spans().filter(|span| span.start() == at && span.name() == kind.name);
                // Two that were entered in the same nanosecond cannot be told apart.
                let (Some(span), None) = (spans.next(), spans.next()) else { continue };
                let recorded = RecordedSpan {
                    window: trace.window(),
                    span: span.id(),
                    step: span.step().map(Step::number),
                    context: span.context(),
                    files: files.to_vec(),
                };
                self.lock_tallies().kinds[index].slowest.set_recorded(&slow, recorded);
            }
        }
    }

    /// Forgets files that have been deleted.
    pub(crate) fn remove_files(&self, files: &BTreeSet<PathBuf>) {
        self.lock_tallies().kinds.iter_mut().for_each(|tally| tally.slowest.remove_files(files));
    }

    /// Adds what windows say about requests, which comes later than other facts about them.
    pub(crate) fn complete(&self, requests: &mut Requests) {
        for (kind, tally) in requests.kinds.iter_mut().zip(&self.lock_tallies().kinds) {
            kind.gpu = tally.gpu.clone();
            for request in &mut kind.slowest {
                let same = |known: &&SlowRequest| (known.start, known.time) == (request.start, request.time);
                // One that has been displaced since keeps what it has.
                if let Some(known) = tally.slowest.requests().find(same) {
                    request.recorded.clone_from(&known.recorded);
                }
            }
        }
    }

    /// The time since the profiler was built.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the kinds of which a request was slow, with the folders that their traces are to be written to now.
    pub(crate) fn take_slow(&self) -> Vec<(usize, PathBuf)> {
        let mut tallies = self.lock_tallies();
        let all = tallies.slow.iter_mut().enumerate();
        all.filter_map(|(kind, slow)| Some((kind, slow.as_mut()?.take()?))).collect()
    }

    /// Notes that the trace of a slow request of a kind is being written.
    pub(crate) fn wrote_slow(&self, kind: usize) {
        self.lock_tallies().slow.get_mut(kind).into_iter().flatten().for_each(SlowTraces::wrote);
    }

    /// Returns the objectives for which an alert begins now.
    pub(crate) fn new_alerts(&self) -> Vec<(Slo, ServiceLevel)> {
        let mut tallies = self.lock_tallies();
        let Tallies { slos, budgets, .. } = &mut *tallies;
        let elapsed = self.elapsed();
        let begins = |(count, budget): (&SloCount, &mut ErrorBudget)| {
            budget.advance(elapsed, count.counts).then(|| (budget.slo().clone(), budget.level()))
        };
        slos.iter().zip(budgets).filter_map(begins).collect()
    }

    /// Returns all requests so far.
    pub(crate) fn requests(&self) -> Requests {
        self.collect();
        let elapsed = self.elapsed();
        let mut tallies = self.lock_tallies();
        let Tallies { kinds, slos, budgets, .. } = &mut *tallies;
        // So that objectives have the same requests as the kinds.
        budgets.iter_mut().zip(slos).for_each(|(budget, slo)| budget.update(slo.counts));
        let kinds = self.kinds.iter().zip(kinds);
        Requests {
            elapsed,
            kinds: kinds.map(|(kind, tally)| tally.requests(&kind.name, &kind.labels, elapsed)).collect(),
            service_levels: budgets.iter().map(ErrorBudget::level).collect(),
        }
    }
}

/// Returns the fields with their names.
fn named<'a>(names: &'a FieldSet, fields: &'a [FieldData]) -> impl Iterator<Item = (&'a str, &'a Value)> {
    // Both are in the order of the callsite, except for fields that are recorded twice.
    let name_of = |index: u32| names.iter().nth(index as usize).map(|field| field.name());
    fields.iter().filter_map(move |field| Some((name_of(field.index)?, &field.value)))
}
