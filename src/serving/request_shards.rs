//! What threads note about requests, until a background thread takes it.

use super::{
    open_request::{KindIndex, Queue, RequestFacts, TokenGap},
    request_labels::GroupIndex,
};
use crate::{
    clock::{Clock, Ticks},
    span_table::RegistryId,
};
use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedRequest {
    /// The id by which windows know its span.
    pub(super) id: RegistryId,
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

/// A list of notes, on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
struct RequestShard {
    notes: Mutex<Vec<RequestNote>>,
    /// The requests that began here less those that ended here, for each kind. The sum of all shards is in flight.
    open: Box<[AtomicI64]>,
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl RequestShards {
    /// The number of shards: as many threads note requests without sharing a lock.
    const SHARDS: usize = 64;
    /// The number of notes that a shard holds, 44 KiB. At the background thread's 20 visits a second, it is full at
    /// 10,000 requests a second and thread. A thread that fills one hands it on itself, so that nothing is lost.
    const NOTES: usize = 512;

    pub(super) fn new(kinds: usize) -> Self {
        let shard = || RequestShard {
            notes: Mutex::default(),
            open: std::iter::repeat_with(AtomicI64::default).take(kinds).collect(),
        };
        Self(std::iter::repeat_with(shard).take(Self::SHARDS).collect())
    }

    /// This thread's shard.
    fn mine(&self) -> &RequestShard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Thread-local storage of this kind has no destructor, and is there until the thread is gone.
        let mut shard = SHARD.get();
        if shard == usize::MAX {
            shard = NEXT.fetch_add(1, Ordering::Relaxed) % Self::SHARDS;
            SHARD.set(shard);
        }
        &self.0[shard]
    }

    /// Notes that a request has begun.
    pub(super) fn begin(&self, kind: KindIndex) {
        self.mine().open[usize::from(kind)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a note. If the list is full, its notes are passed to `hand_on` by this thread. The list is allocated when
    /// it is first used.
    pub(super) fn note(&self, note: RequestNote, hand_on: impl FnOnce(&[RequestNote])) {
        let shard = self.mine();
        let mut notes = lock(&shard.notes);
        // Within the lock, as `collect` reads both: what it does not count as in flight, it has a note of.
        if let RequestNote::Ended(ended) = &note {
            shard.open[usize::from(ended.kind)].fetch_sub(1, Ordering::Relaxed);
        }
        if notes.len() == Self::NOTES {
            hand_on(&notes);
            notes.clear();
        } else if notes.capacity() == 0 {
            notes.reserve_exact(Self::NOTES);
        }
        notes.push(note);
    }

    /// Passes all notes to `take`, and adds the number of requests in flight to `in_flight`, for each kind.
    pub(super) fn collect(&self, in_flight: &mut [i64], mut take: impl FnMut(&[RequestNote])) {
        let mut taken = Vec::with_capacity(Self::NOTES);
        for shard in &self.0 {
            let mut notes = lock(&shard.notes);
            let open = shard.open.iter().map(|open| open.load(Ordering::Relaxed));
            in_flight.iter_mut().zip(open).for_each(|(sum, open)| *sum += open);
            // The thread goes on with an empty list that has its memory already.
            if !notes.is_empty() {
                std::mem::swap(&mut *notes, &mut taken);
            }
            drop(notes);
            take(&taken);
            taken.clear();
        }
    }
}

// Another core read this memory last, so that each cache line of a note takes time to write.
const _: () = assert!(size_of::<RequestNote>() <= 88);

fn lock(notes: &Mutex<Vec<RequestNote>>) -> MutexGuard<'_, Vec<RequestNote>> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}
