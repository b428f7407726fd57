//! A sample of the allocations in a window, followed until they are freed.
//!
//! On average, one allocation in every [`MEAN_BYTES`] is taken. A larger one is more likely to be taken, and a sample
//! stands for as many bytes as make up for those that were not (as in tcmalloc's heap profiler). Whether an address is
//! one of the sampled is looked up in a small table of bytes first, so that most frees need a single load.

use super::{Uncounted, stacks};
use crate::{
    clock::{Clock, Ticks},
    thread::this_thread,
    trace::{HeapSampleData, ThreadId},
};
use rustc_hash::FxHashMap;
use std::{
    backtrace::Backtrace,
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
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
#[derive(Clone, Debug)]
pub(crate) struct HeapSample {
    /// The number of bytes that it stands for, together with others that were not sampled.
    pub(crate) bytes: u64,
    /// Its own size.
    pub(crate) size: u64,
    pub(crate) at: Ticks,
    pub(crate) thread: ThreadId,
    /// When it was freed, if it was before the window closed.
    pub(crate) freed: Option<Ticks>,
    /// Where it was allocated, if stacks are captured.
    pub(crate) stack: Option<Arc<Backtrace>>,
}

/// The samples of one window.
#[derive(Debug, Default)]
pub(crate) struct HeapSamples {
    pub(crate) samples: Vec<HeapSample>,
    /// Samples that were not taken because there were too many, or no memory for them.
    pub(crate) lost: u64,
    /// Sampled allocations, and frees of samples, that gave up waiting for the lock.
    pub(crate) missed: u64,
    /// The samples that have not been freed, by address.
    live: FxHashMap<usize, usize>,
}

static CLOCK: OnceLock<Clock> = OnceLock::new();
static SAMPLING: AtomicBool = AtomicBool::new(false);
static SAMPLES: Mutex<Option<HeapSamples>> = Mutex::new(None);
/// What [`HeapSamples::missed`] counts, which cannot be in there without the lock.
static MISSED: AtomicU64 = AtomicU64::new(0);
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
    MISSED.fetch_add(1, Ordering::Relaxed);
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
    MISSED.store(0, Ordering::Relaxed);
    SAMPLING.store(true, Ordering::Relaxed);
}

/// Ends sampling, as a window closes, and returns the samples.
pub(super) fn take() -> HeapSamples {
    let _uncounted = Uncounted::begin();
    SAMPLING.store(false, Ordering::Relaxed);
    let mut samples = lock();
    FILTER.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    let mut taken = samples.take().unwrap_or_default();
    taken.missed = MISSED.swap(0, Ordering::Relaxed);
    taken
}

impl HeapSamples {
    /// The bytes that the samples take, with their part of the trace.
    pub(crate) fn cost(&self) -> usize {
        let live = self.live.capacity() * size_of::<(usize, usize)>();
        self.samples.capacity() * (size_of::<HeapSample>() + size_of::<HeapSampleData>()) + live
    }

    /// Drops all samples, which then count as lost.
    pub(crate) fn give_up(&mut self) {
        self.lost += self.samples.len() as u64;
        (self.samples, self.live) = (Vec::new(), FxHashMap::default());
    }
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
    if RANDOM.get() == 0 {
        // Nothing had been drawn for this thread.
        let left = draw() - bytes as i64;
        if left >= 0 {
            UNTIL_NEXT.set(left);
            return;
        }
    }
    UNTIL_NEXT.set(draw());
    // The probability that an allocation of this size is sampled.
    let probability = 1.0 - (-(bytes as f64) / MEAN_BYTES).exp();
    let stands_for = if bytes == 0 { 0 } else { (bytes as f64 / probability) as u64 };
    let stack = stacks::capture();
    let (Some(clock), Some(mut samples)) = (CLOCK.get(), try_lock()) else { return };
    let Some(samples) = samples.as_mut() else { return };
    if samples.samples.len() >= MAX_SAMPLES {
        samples.lost += 1;
        return;
    }
    let (at, thread) = (clock.now(), this_thread());
    match samples.live.insert(address, samples.samples.len()) {
        // Its free was missed, for want of the lock.
        Some(before) => samples.samples[before].freed = Some(at),
        None => {
            let count = &FILTER[slot(address)];
            count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
        }
    }
    samples.samples.push(HeapSample { bytes: stands_for, size: bytes as u64, at, thread, freed: None, stack });
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

/// Returns a number of bytes until the next sample.
fn draw() -> i64 {
    (-MEAN_BYTES * random().ln()) as i64
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

#[cfg(test)]
mod tests {
    use super::{
        FILTER, MEAN_BYTES, RANDOM, UNTIL_NEXT, begin, free, lock, note_allocated, note_freed, prepare, sample, slot,
        take,
    };
    use crate::clock::Clock;
    use proptest::prelude::*;
    use std::{
        collections::HashMap,
        sync::{Mutex, PoisonError, atomic::Ordering},
    };

    /// The samples belong to the process.
    static ALONE: Mutex<()> = Mutex::new(());

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Frees of unknown addresses, double frees, addresses that are allocated twice, sizes of nothing and of half
        /// the address space.
        #[test]
        fn any_sequence_is_followed_as_a_model_does(
            changes in prop::collection::vec(
                (
                    prop_oneof![4 => (0_usize..8).prop_map(|it| it * 64), 1 => usize::MAX - 3..usize::MAX],
                    prop::option::weighted(
                        0.6,
                        prop_oneof![1 => Just(0), 4 => 1_usize..1 << 20, 1 => Just(isize::MAX as usize)],
                    ),
                ),
                0..100,
            ),
        ) {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            prepare(&Clock::new());
            begin();
            RANDOM.set(1);
            // Which samples there are, with their bytes, and whether each is live.
            let mut expected: Vec<(usize, bool)> = Vec::new();
            let mut live: HashMap<usize, usize> = HashMap::new();
            for (address, bytes) in changes {
                match bytes {
                    Some(bytes) => {
                        sample(address, bytes);
                        if let Some(before) = live.insert(address, expected.len()) {
                            expected[before].1 = false;
                        }
                        expected.push((bytes, true));
                    }
                    None => {
                        free(address);
                        if let Some(index) = live.remove(&address) {
                            expected[index].1 = false;
                        }
                    }
                }
                let filtered = |address: &usize| FILTER[slot(*address)].load(Ordering::Relaxed) > 0;
                prop_assert!(live.keys().all(filtered));
            }
            let filtered: u64 = FILTER.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).sum();
            prop_assert_eq!(filtered, live.len() as u64);
            let taken = take();
            prop_assert_eq!(taken.lost, 0);
            prop_assert_eq!(taken.samples.len(), expected.len());
            for (sample, (bytes, is_live)) in taken.samples.iter().zip(expected) {
                prop_assert_eq!(sample.freed.is_none(), is_live);
                prop_assert!(sample.freed.is_none_or(|freed| freed >= sample.at));
                // A sample stands for no less than itself, and a small one for about the mean.
                let (least, most) = (bytes as f64, bytes as f64 + MEAN_BYTES + 1.0);
                prop_assert!((least * 0.999..=most * 1.001).contains(&(sample.bytes as f64)), "{sample:?} {bytes}");
            }
            prop_assert!(FILTER.iter().all(|count| count.load(Ordering::Relaxed) == 0));
        }
    }

    /// As in a fork, where no other thread will ever give the lock back.
    #[test]
    fn what_gives_up_waiting_is_counted() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        prepare(&Clock::new());
        begin();
        RANDOM.set(1);
        sample(64, 1 << 20);
        let held = lock();
        std::thread::spawn(|| {
            RANDOM.set(1);
            sample(128, 1 << 20);
            free(64);
        })
        .join()
        .unwrap();
        drop(held);
        let taken = take();
        assert_eq!((taken.missed, taken.lost, taken.samples.len()), (2, 0, 1));
        begin();
        assert_eq!(take().missed, 0);
    }

    #[test]
    fn samples_without_memory_are_lost() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        prepare(&Clock::new());
        begin();
        RANDOM.set(1);
        (0..100).for_each(|index| sample(index * 64, 1 << 20));
        let mut taken = take();
        assert!((8_000..40_000).contains(&taken.cost()), "{}", taken.cost());
        taken.give_up();
        assert_eq!((taken.samples.len(), taken.lost, taken.cost()), (0, 100, 0));
    }

    /// A thread that begins with a large allocation does not sample its second one because of that.
    #[test]
    fn the_first_sample_of_a_thread_does_not_cause_a_second() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        prepare(&Clock::new());
        begin();
        for _ in 0..100 {
            std::thread::spawn(|| {
                RANDOM.set(0);
                UNTIL_NEXT.set(0);
                note_allocated(1 << 30, 1 << 20);
                note_allocated(64, 1);
                note_freed(64);
                note_freed(1 << 30);
            })
            .join()
            .unwrap();
        }
        let small = take().samples.iter().filter(|sample| sample.bytes < 1 << 19).count();
        // One byte is sampled once in 16,384 times.
        assert!(small <= 1, "{small} of 100");
    }
}
