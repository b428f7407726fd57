//! A sample of the allocations in a window, followed until they are freed.
//!
//! On average, one allocation in every [`MEAN_BYTES`] is taken. A larger one is more likely to be taken, and a sample
//! stands for as many bytes as make up for those that were not (as in tcmalloc's heap profiler). Whether an address is
//! one of the sampled is looked up in a small table of bytes first, so that most frees need a single load.

use super::Uncounted;
use crate::{
    clock::{Clock, Ticks},
    thread::this_thread,
    trace::ThreadId,
};
use rustc_hash::FxHashMap;
use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

/// The mean number of bytes between two samples: few enough that a leak of some kilobytes a step is seen in a window of
/// a few steps. A sample costs some hundred nanoseconds, and so does an allocation of this size.
const MEAN_BYTES: f64 = (16 << 10) as f64;
/// The most samples of a window: 5 MB. Allocations after that are not sampled, and counted as lost.
const MAX_SAMPLES: usize = 1 << 16;

/// How often an allocation or a free tries to lock the samples: for milliseconds.
const TRIES: u32 = 10_000;

/// A sampled allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeapSample {
    /// The number of bytes that it stands for, together with others that were not sampled.
    pub(crate) bytes: u64,
    pub(crate) at: Ticks,
    pub(crate) thread: ThreadId,
    /// When it was freed, if it was before the window closed.
    pub(crate) freed: Option<Ticks>,
}

/// The samples of one window.
#[derive(Debug, Default)]
pub(crate) struct HeapSamples {
    pub(crate) samples: Vec<HeapSample>,
    /// Samples that were not taken because there were too many.
    pub(crate) lost: u64,
    /// The samples that have not been freed, by address.
    live: FxHashMap<usize, usize>,
}

static CLOCK: OnceLock<Clock> = OnceLock::new();
static SAMPLING: AtomicBool = AtomicBool::new(false);
static SAMPLES: Mutex<Option<HeapSamples>> = Mutex::new(None);
/// The number of live samples by a hash of their address, at most 255: from then on it stays, and frees are looked up.
static FILTER: [AtomicU8; 1 << 16] = [const { AtomicU8::new(0) }; 1 << 16];

thread_local! {
    /// The number of bytes until the next sample, and the state of the random numbers that it is drawn with.
    static UNTIL_NEXT: Cell<i64> = const { Cell::new(0) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

fn lock() -> MutexGuard<'static, Option<HeapSamples>> {
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the samples for an allocation or a free, unless that takes long: in a fork, a thread that does not exist may
/// hold the lock forever. Others hold it for less than a microsecond, or for some when the list of samples grows.
fn try_lock() -> Option<MutexGuard<'static, Option<HeapSamples>>> {
    for _ in 0..TRIES {
        match SAMPLES.try_lock() {
            Ok(samples) => return Some(samples),
            Err(TryLockError::Poisoned(samples)) => return Some(samples.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// Sets the clock that samples are timed with. All clocks of the process read the same counter.
pub(super) fn prepare(clock: &Clock) {
    CLOCK.get_or_init(|| clock.clone());
}

/// Begins to sample, as a window opens.
pub(super) fn begin() {
    let _uncounted = Uncounted::begin();
    *lock() = Some(HeapSamples::default());
    SAMPLING.store(true, Ordering::Relaxed);
}

/// Ends sampling, as a window closes, and returns the samples.
pub(super) fn take() -> HeapSamples {
    let _uncounted = Uncounted::begin();
    SAMPLING.store(false, Ordering::Relaxed);
    let mut samples = lock();
    FILTER.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    samples.take().unwrap_or_default()
}

#[inline]
pub(super) fn note_allocated(address: usize, bytes: usize) {
    if SAMPLING.load(Ordering::Relaxed) {
        let left = UNTIL_NEXT.get() - bytes as i64;
        UNTIL_NEXT.set(left);
        if left < 0 {
            sample(address, bytes);
        }
    }
}

#[inline]
pub(super) fn note_freed(address: usize) {
    if SAMPLING.load(Ordering::Relaxed) && FILTER[slot(address)].load(Ordering::Relaxed) != 0 {
        free(address);
    }
}

/// Returns the place of an address in [`FILTER`], by Fibonacci hashing.
#[inline]
fn slot(address: usize) -> usize {
    ((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

#[cold]
fn sample(address: usize, bytes: usize) {
    let _uncounted = Uncounted::begin();
    let is_first = RANDOM.get() == 0;
    UNTIL_NEXT.set((-MEAN_BYTES * random().ln()) as i64);
    if is_first {
        // Nothing had been drawn for this thread.
        UNTIL_NEXT.set(UNTIL_NEXT.get() - bytes as i64);
        if UNTIL_NEXT.get() >= 0 {
            return;
        }
    }
    // The probability that an allocation of this size is sampled.
    let probability = 1.0 - (-(bytes as f64) / MEAN_BYTES).exp();
    let stands_for = if bytes == 0 { 0 } else { (bytes as f64 / probability) as u64 };
    let (Some(clock), Some(mut samples)) = (CLOCK.get(), try_lock()) else { return };
    let Some(samples) = samples.as_mut() else { return };
    if samples.samples.len() >= MAX_SAMPLES {
        samples.lost += 1;
        return;
    }
    samples.live.insert(address, samples.samples.len());
    let thread = this_thread();
    samples.samples.push(HeapSample { bytes: stands_for, at: clock.now(), thread, freed: None });
    let count = &FILTER[slot(address)];
    count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}

#[cold]
fn free(address: usize) {
    let _uncounted = Uncounted::begin();
    let (Some(clock), Some(mut samples)) = (CLOCK.get(), try_lock()) else { return };
    let Some(samples) = samples.as_mut() else { return };
    if let Some(index) = samples.live.remove(&address) {
        samples.samples[index].freed = Some(clock.now());
        let count = &FILTER[slot(address)];
        let before = count.load(Ordering::Relaxed);
        if before != u8::MAX {
            count.store(before - 1, Ordering::Relaxed);
        }
    }
}

/// Returns a random number above 0 and up to 1, by xorshift64*.
fn random() -> f64 {
    let mut state = RANDOM.get();
    if state == 0 {
        // Each thread begins elsewhere: with the address of its own state.
        state = RANDOM.with(|cell| std::ptr::from_ref(cell).addr() as u64) | 1;
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    RANDOM.set(state);
    ((state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) + 1) as f64 / (1_u64 << 53) as f64
}
