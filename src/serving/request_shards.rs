//! What threads note about requests, until a background thread takes it.

use super::{
    open_request::{KindIndex, Queue, RequestFacts, TokenGap},
    request_labels::GroupIndex,
};
use crate::clock::{Clock, Ticks};
use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedRequest {
    pub(super) kind: KindIndex,
    pub(super) group: GroupIndex,
    pub(super) start: Ticks,
    pub(super) end: Ticks,
    pub(super) facts: RequestFacts,
}

impl EndedRequest {
    /// Returns the time from the creation of the span to its close, in nanoseconds.
    pub(super) fn latency(&self, clock: &Clock) -> u64 {
        clock_nanos(self.end.0.saturating_sub(self.start.0), clock)
    }

    /// Returns the time from the intended start, or else from the creation of the span, to its close.
    pub(super) fn experienced(&self, clock: &Clock) -> u64 {
        let queue = if let Queue::Nanos(queue) = self.facts.queue { queue } else { 0 };
        self.latency(clock).saturating_add(queue)
    }
}

/// Returns ticks as nanoseconds.
pub(super) fn clock_nanos(ticks: u64, clock: &Clock) -> u64 {
    u64::try_from(clock.duration(ticks).as_nanos()).unwrap_or(u64::MAX)
}

/// A note of a thread about a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestNote {
    Ended(EndedRequest),
    Tokens(KindIndex, GroupIndex, TokenGap),
}

/// Lists of notes, one for each thread as long as there are not more than [`Self::SHARDS`].
#[derive(Debug)]
pub(super) struct RequestShards(Box<[RequestShard]>);

/// A list of notes, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct RequestShard(Mutex<ShardState>);

#[derive(Debug, Default)]
struct ShardState {
    notes: Vec<RequestNote>,
    /// The requests that began here less those that ended here, for each kind. The sum of all shards is in flight.
    open: Vec<i64>,
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl RequestShards {
    /// The number of shards: as many threads note requests without sharing a lock.
    const SHARDS: usize = 64;
    /// The number of notes that a shard holds, 60 KiB. At the background thread's 20 visits a second, it is full at
    /// 10,000 requests a second and thread. A thread that fills one hands it on itself, so that nothing is lost.
    const NOTES: usize = 512;

    pub(super) fn new() -> Self {
        Self(std::iter::repeat_with(RequestShard::default).take(Self::SHARDS).collect())
    }

    /// This thread's shard, locked. It allocates when it is first used.
    fn mine(&self, kinds: usize) -> MutexGuard<'_, ShardState> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Thread-local storage of this kind has no destructor, and is there until the thread is gone.
        let mut shard = SHARD.get();
        if shard == usize::MAX {
            shard = NEXT.fetch_add(1, Ordering::Relaxed) % Self::SHARDS;
            SHARD.set(shard);
        }
        let mut state = lock(&self.0[shard]);
        if state.open.is_empty() {
            state.notes = Vec::with_capacity(Self::NOTES);
            state.open = vec![0; kinds];
        }
        state
    }

    /// Notes that a request has begun.
    pub(super) fn begin(&self, kind: KindIndex, kinds: usize) {
        if let Some(open) = self.mine(kinds).open.get_mut(usize::from(kind)) {
            *open += 1;
        }
    }

    /// Adds a note. If the list is full, its notes are passed to `hand_on` by this thread.
    pub(super) fn note(&self, note: RequestNote, kinds: usize, hand_on: impl FnOnce(&mut Vec<RequestNote>)) {
        let mut state = self.mine(kinds);
        if let RequestNote::Ended(ended) = &note
            && let Some(open) = state.open.get_mut(usize::from(ended.kind))
        {
            *open -= 1;
        }
        if state.notes.len() == Self::NOTES {
            hand_on(&mut state.notes);
            state.notes.clear();
        }
        state.notes.push(note);
    }

    /// Passes all notes to `take`, and adds the number of requests in flight to `in_flight`, for each kind.
    pub(super) fn collect(&self, in_flight: &mut [i64], mut take: impl FnMut(&[RequestNote])) {
        let mut taken = Vec::with_capacity(Self::NOTES);
        for shard in &self.0 {
            let mut state = lock(shard);
            in_flight.iter_mut().zip(&state.open).for_each(|(sum, open)| *sum += open);
            // The thread goes on with an empty list that has its memory already.
            if !state.notes.is_empty() {
                std::mem::swap(&mut state.notes, &mut taken);
            }
            drop(state);
            take(&taken);
            taken.clear();
        }
    }
}

fn lock(shard: &RequestShard) -> MutexGuard<'_, ShardState> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}
