//! Samples of a pool's threads, and the spans of the threads that wait for them.
//!
//! The threads of a pool have no spans of their own. What one does is for the thread that waits for the pool; if a
//! single thread can be that, its span is certain, and otherwise the sample stays outside all spans. The waits of all
//! threads are known, with their stacks, so most threads can be ruled out. The frames of two kinds of pools are known:
//!
//! - **rayon**, which gemm uses, too: whoever is not of the pool sleeps in a `LockLatch` until its jobs are done. So a
//!   job is for a thread that sleeps there, unless it was left to the pool by `rayon::spawn`.
//! - **Candle's barrier pool**: its caller holds a lock, does a part of the work itself, and then spins. So the work is
//!   for a thread that is on a CPU.
//!
//! docs/sampling.md lists what this leaves out.

use super::nest::{Query, innermost};
use crate::trace::{SpanId, StackFrame, StackSampleData, StackSampling, ThreadId, Trace};
use rustc_hash::FxHashSet;

/// A kind of pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Rayon,
    Candle,
}

/// The start of the names that Candle gives to the threads of its barrier pool.
const CANDLE_THREADS: &str = "candle-bp-";

/// The number of samples that a thread has at least if it is on a CPU throughout a window: one without any has waited
/// all the time. It is also what shorter windows lack.
const MIN_INTERVALS: u64 = 4;

/// Returns the samples of pools' threads whose work is certain to be for a span, by their indices.
pub(super) fn samples_of_pools(trace: &Trace, sampling: &StackSampling) -> Vec<(usize, SpanId)> {
    let is_long = trace.duration().as_nanos() * u128::from(sampling.hertz) >= u128::from(MIN_INTERVALS) * 1_000_000_000;
    // What is not known of some threads may rule out all others.
    if !is_long || sampling.problem.is_some() || !sampling.samples.iter().any(|sample| sample.waiting) {
        return Vec::new();
    }
    let facts = StackFacts::of_nodes(sampling);
    let facts_of = |sample: &StackSampleData| sample.stack.map_or(StackFacts::default(), |node| facts[node.index()]);
    let mut threads = Threads::of(trace);
    let mut is_spawning = false;
    for sample in &sampling.samples {
        threads.add(sample, facts_of(sample));
        is_spawning |= facts_of(sample).is_spawned;
    }
    let task = |sample: &StackSampleData| {
        let facts = facts_of(sample);
        let pool = threads.all[sample.track.index()].pool.filter(|_| !sample.waiting && sample.span.is_none())?;
        let is_task = match pool {
            Pool::Rayon => facts.is_job && !is_spawning && !sample.truncated,
            Pool::Candle => facts.is_candle_work,
        };
        is_task.then_some(pool)
    };
    let tasks: Vec<(usize, Pool)> =
        sampling.samples.iter().enumerate().filter_map(|(index, sample)| Some((index, task(sample)?))).collect();
    let moments: Vec<_> = tasks.iter().map(|&(index, _)| sampling.samples[index].at).collect();
    let with_spans: FxHashSet<ThreadId> = trace.spans.iter().map(|span| trace.track(span.track).thread).collect();
    let mut queries = Vec::new();
    for (number, thread) in threads.all.iter_mut().enumerate() {
        let id = trace.tracks[number].thread;
        if !thread.is_other_track && with_spans.contains(&id) {
            thread.first_query = Some(queries.len());
            queries.extend(moments.iter().map(|&at| Query { thread: id, at, answer: None }));
        }
    }
    innermost(trace, &mut queries);
    let mut found = Vec::new();
    let mut tasks = tasks.into_iter().enumerate().peekable();
    for (index, sample) in sampling.samples.iter().enumerate() {
        if sample.waiting {
            let (track, facts) = (sample.track.index(), facts_of(sample));
            threads.all[track].wait = Some(Wait { sample: *sample, facts });
        } else if let Some((task, (_, pool))) = tasks.next_if(|(_, (of, _))| *of == index) {
            let (at, sampled) = (sample.at.as_unix_nanos(), &threads.all[sample.track.index()]);
            let moment = Moment { at, sampled, facts: facts_of(sample), task, threads: &threads, queries: &queries };
            found.extend(moment.owner(pool, 0).map(|span| (index, span)));
        }
    }
    found
}

/// What the threads of a trace were seen doing, by the index of their tracks.
struct Threads {
    all: Vec<Thread>,
}

#[derive(Default)]
struct Thread {
    /// Whether it is a further track of a thread, which has no samples.
    is_other_track: bool,
    /// The pool that it is of.
    pool: Option<Pool>,
    is_sampled: bool,
    /// Whether it was on a CPU in a function of Candle in this window.
    runs_candle: bool,
    /// The wait that began last.
    wait: Option<Wait>,
    /// The index of the first query about its spans. There is one for each task.
    first_query: Option<usize>,
}

struct Wait {
    sample: StackSampleData,
    facts: StackFacts,
}

impl Threads {
    fn of(trace: &Trace) -> Self {
        let mut seen = FxHashSet::default();
        let thread = |track: &crate::trace::Track| Thread {
            is_other_track: !seen.insert(track.thread),
            pool: track.name.starts_with(CANDLE_THREADS).then_some(Pool::Candle),
            ..Thread::default()
        };
        Self { all: trace.tracks.iter().map(thread).collect() }
    }

    fn add(&mut self, sample: &StackSampleData, facts: StackFacts) {
        let thread = &mut self.all[sample.track.index()];
        thread.is_sampled = true;
        thread.runs_candle |= facts.is_candle && !sample.waiting;
        let pool = [(facts.is_rayon_thread, Pool::Rayon), (facts.is_candle_work, Pool::Candle)];
        thread.pool = thread.pool.or(pool.into_iter().find_map(|(is, pool)| is.then_some(pool)));
    }
}

/// A moment at which a thread of a pool was sampled.
struct Moment<'a> {
    at: u64,
    sampled: &'a Thread,
    /// What the sampled stack says.
    facts: StackFacts,
    /// The number of the sample among those in question.
    task: usize,
    threads: &'a Threads,
    queries: &'a [Query],
}

/// What is known of a thread at a moment.
enum Suspicion {
    /// The pool does not work for it.
    Cleared,
    /// The pool works for it, or else for another one that is suspected.
    Suspected,
    /// It may be or not.
    Unknown,
}

impl Moment<'_> {
    /// The most pools of which one works for a thread of the next.
    const MOST_NESTED: usize = 2;

    /// Returns the span that a pool works for, if all threads but those of one span can be ruled out.
    fn owner(&self, pool: Pool, nested: usize) -> Option<SpanId> {
        let mut owner = None;
        for thread in &self.threads.all {
            let span = self.span(thread);
            if thread.is_other_track {
                continue;
            }
            if thread.pool == Some(pool) {
                // It may do a job of its own span, and have others of the pool help.
                if span.is_some() {
                    return None;
                }
                continue;
            }
            match self.suspicion(thread, pool, span.is_some()) {
                Suspicion::Cleared => {}
                Suspicion::Unknown => return None,
                Suspicion::Suspected => {
                    let other = thread.pool.filter(|_| nested < Self::MOST_NESTED);
                    let span = span.or_else(|| self.owner(other?, nested + 1))?;
                    if owner.replace(span).is_some_and(|owner| owner != span) {
                        return None;
                    }
                }
            }
        }
        owner
    }

    fn suspicion(&self, thread: &Thread, pool: Pool, has_span: bool) -> Suspicion {
        match (pool, self.wait(thread)) {
            (Pool::Rayon, Some(wait)) if wait.facts.is_join => Suspicion::Suspected,
            (_, Some(wait)) if wait.sample.stack.is_none() || wait.sample.truncated => Suspicion::Unknown,
            (Pool::Candle, Some(wait)) if wait.facts.may_hold_barrier() => Suspicion::Unknown,
            (_, Some(_)) | (Pool::Rayon, None) => Suspicion::Cleared,
            (Pool::Candle, None) if std::ptr::eq(thread, self.sampled) && !self.facts.is_candle => Suspicion::Cleared,
            (Pool::Candle, None) if thread.runs_candle => Suspicion::Suspected,
            (Pool::Candle, None) if thread.is_sampled || has_span => Suspicion::Unknown,
            (Pool::Candle, None) => Suspicion::Cleared,
        }
    }

    /// Returns the wait that a thread is in.
    fn wait<'a>(&self, thread: &'a Thread) -> Option<&'a Wait> {
        let end = |wait: &Wait| wait.sample.at.as_unix_nanos().saturating_add(wait.sample.nanos);
        thread.wait.as_ref().filter(|wait| self.at <= end(wait))
    }

    /// Returns the innermost span that is open on a thread.
    fn span(&self, thread: &Thread) -> Option<SpanId> {
        self.queries[thread.first_query? + self.task].answer
    }
}

/// What the frames of a stack say about pools.
#[derive(Clone, Copy, Debug, Default)]
struct StackFacts {
    /// The thread is of a pool of rayon.
    is_rayon_thread: bool,
    /// The thread sleeps until a pool of rayon has done its jobs.
    is_join: bool,
    /// The thread does a job for which somebody waits.
    is_job: bool,
    /// A job that somebody may wait for or not. Its next frame says so.
    is_heap_job: bool,
    /// The thread does a job for which nobody waits, as of `rayon::spawn`.
    is_spawned: bool,
    /// The thread does work of Candle's barrier pool.
    is_candle_work: bool,
    /// The thread has Candle's barrier pool work for it, or waits for its turn.
    is_barrier: bool,
    is_candle: bool,
    is_preempted: bool,
}

impl StackFacts {
    /// Returns the facts about each stack, by its innermost node.
    fn of_nodes(sampling: &StackSampling) -> Vec<Self> {
        let frames: Vec<FrameFacts> = sampling.frames.iter().map(FrameFacts::of).collect();
        let mut all: Vec<Self> = Vec::with_capacity(sampling.nodes.len());
        // Callers come before those that they call.
        for node in &sampling.nodes {
            let outer = node.caller.map_or(Self::default(), |caller| all[caller.index()]);
            all.push(outer.with(frames[node.frame.index()]));
        }
        all.iter_mut().for_each(|facts| facts.is_spawned |= facts.is_heap_job);
        all
    }

    /// Whether a thread that waits here may have Candle's barrier pool work for it. Where it is unknown which functions
    /// were inlined, that may not show.
    fn may_hold_barrier(&self) -> bool {
        self.is_barrier || self.is_preempted || (self.is_candle && !self.is_join)
    }

    /// Adds the facts about a frame that these call.
    fn with(mut self, frame: FrameFacts) -> Self {
        if self.is_heap_job && frame != FrameFacts::Runtime {
            self.is_heap_job = false;
            self.is_job |= frame == FrameFacts::Scope;
            self.is_spawned |= frame != FrameFacts::Scope;
        }
        match frame {
            FrameFacts::RayonThread => self.is_rayon_thread = true,
            FrameFacts::Join => self.is_join = true,
            FrameFacts::StackJob => self.is_job = true,
            FrameFacts::HeapJob => self.is_heap_job = true,
            FrameFacts::CandleWork => (self.is_candle_work, self.is_candle) = (true, true),
            FrameFacts::Barrier => (self.is_barrier, self.is_candle) = (true, true),
            FrameFacts::Candle => self.is_candle = true,
            FrameFacts::Preempted => self.is_preempted = true,
            FrameFacts::Scope | FrameFacts::Runtime | FrameFacts::Other => {}
        }
        self
    }
}

/// What a frame says about pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameFacts {
    /// The root of the threads of rayon.
    RayonThread,
    Join,
    StackJob,
    /// A job on the heap: of a scope, which waits for it, or spawned.
    HeapJob,
    /// What a job of a scope runs first.
    Scope,
    CandleWork,
    Barrier,
    Candle,
    Preempted,
    /// The standard library, and other parts of rayon.
    Runtime,
    Other,
}

impl FrameFacts {
    /// Reads the name of a function. An inlined one may have no path, but its file has.
    fn of(frame: &StackFrame) -> Self {
        let (function, file) = (frame.function(), frame.file().unwrap_or_default());
        let has = |word: &str| function.contains(word);
        let is_of = |path: &str, folder: &str| has(path) || file.contains(folder);
        if function == "[preempted]" {
            return Self::Preempted;
        }
        if is_of("rayon_core::", "/rayon-core") {
            let is_execute = has("execute");
            return match () {
                () if has("in_worker_cold") || has("LockLatch") || has("wait_and_reset") => Self::Join,
                () if function.ends_with("main_loop") || has("ThreadBuilder::run") || has("ThreadBuilder>::run") => {
                    Self::RayonThread
                }
                () if has("StackJob") && is_execute => Self::StackJob,
                () if (has("HeapJob") || has("ArcJob")) && is_execute => Self::HeapJob,
                () if is_of("rayon_core::scope::", "/src/scope/") => Self::Scope,
                () if is_of("rayon_core::spawn::", "/src/spawn/") || has("rayon_core::broadcast::") => Self::Other,
                () => Self::Runtime,
            };
        }
        if is_of("candle_core::", "/candle-core") {
            return match () {
                () if has("call_trampoline") => Self::CandleWork,
                () if has("Barrier") || has("execute") => Self::Barrier,
                () => Self::Candle,
            };
        }
        let is_std =
            ["core::", "std::", "alloc::", "<core::", "<alloc::"].iter().any(|path| function.starts_with(path));
        if is_std || file.contains("/library/") { Self::Runtime } else { Self::Other }
    }
}

#[cfg(test)]
mod tests;
