//! The lanes of one profiler: one for each thread.

use super::{
    Control,
    lane::{Lane, LaneReader, Ring},
    stack::SharedStack,
};
use crate::thread::{self, ThreadInfo};
use std::{
    cell::RefCell,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// The lanes of one profiler, and the control word that their threads follow.
///
/// Finds the calling thread's lane, creates it the first time, and gives its reader to the collector.
#[derive(Debug)]
pub(super) struct Lanes {
    control: AtomicU64,
    /// The number of the profiler, which distinguishes the lanes of several profilers on one thread.
    profiler: u64,
    capacity: usize,
    /// The marks that the control word has in every phase but off.
    marks: u64,
    rings: Mutex<Rings>,
    /// Records for which there was no lane.
    unreachable: AtomicU64,
}

/// The rings that the collector does not hold.
#[derive(Debug, Default)]
struct Rings {
    /// Readers of lanes that the collector has not taken over yet.
    new: Vec<LaneReader>,
    /// The rings of threads that have ended, for reuse by new threads.
    free: Vec<Ring>,
    /// The name and the stack of each thread, and of some that have ended.
    stacks: Vec<(String, Weak<SharedStack>)>,
}

thread_local! {
    /// This thread's lanes, one for each profiler that saw a span here.
    static LANES: RefCell<Vec<Lane>> = const { RefCell::new(Vec::new()) };
}

impl Lanes {
    pub(super) fn new(capacity: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let profiler = NEXT.fetch_add(1, Ordering::Relaxed);
        let control = AtomicU64::new(Control::waiting(0).as_u64());
        let (rings, unreachable) = (Mutex::default(), AtomicU64::new(0));
        Self { control, profiler, capacity, marks: 0, rings, unreachable }
    }

    /// Marks the control word, now and in future, with what is measured at each enter and exit.
    pub(super) fn mark(&mut self, mark: u64) {
        self.marks |= mark;
        self.set_control(self.control());
    }

    #[inline]
    pub(super) fn control(&self) -> Control {
        // Relaxed: if a thread sees the change late, its timestamps still show which window its records belong to.
        Control::from_u64(self.control.load(Ordering::Relaxed))
    }

    pub(super) fn set_control(&self, control: Control) {
        self.control.store(control.marked(self.marks).as_u64(), Ordering::Relaxed);
        if control.is_off() {
            self.lock_rings().free.clear();
        }
    }

    /// Returns the control word itself, for callers that read it again.
    #[inline]
    pub(super) fn control_word(&self) -> &AtomicU64 {
        &self.control
    }

    /// The number of the profiler.
    pub(super) fn profiler(&self) -> u64 {
        self.profiler
    }

    /// Runs `f` on this thread's lane if it is the first of the thread's lanes, and returns what `f` returns. Otherwise
    /// returns false: the thread has no lane yet, or another profiler also has one.
    #[inline]
    pub(super) fn with_first(&self, f: impl FnOnce(&mut Lane) -> bool) -> bool {
        let done = LANES.try_with(|lanes| match lanes.try_borrow_mut() {
            Ok(mut lanes) => lanes.first_mut().filter(|lane| lane.profiler() == self.profiler).is_some_and(f),
            Err(_) => false,
        });
        done.unwrap_or(false)
    }

    /// Runs `f` on this thread's lane, creating it if necessary. Returns false if the lane cannot be reached.
    #[inline]
    pub(super) fn with(&self, f: impl FnOnce(&mut Lane)) -> bool {
        let reached = LANES.try_with(|lanes| {
            // It is already borrowed only if the registry ran a user's destructor inside `f`: not worth a panic.
            let Ok(mut lanes) = lanes.try_borrow_mut() else { return false };
            let index = match lanes.iter().position(|lane| lane.profiler() == self.profiler) {
                Some(index) => index,
                None if thread::is_muted() => return true,
                None => self.open(&mut lanes),
            };
            f(&mut lanes[index]);
            true
        });
        reached.unwrap_or(false)
    }

    /// Like [`with`](Self::with). If the lane cannot be reached while a window is open, counts a lost record.
    #[inline]
    pub(super) fn with_or_count(&self, control: Control, f: impl FnOnce(&mut Lane)) {
        if !self.with(f) && control.is_recording() {
            self.unreachable.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Like [`with`](Self::with). If the lane cannot be reached, counts a lost record, even if the window has just
    /// closed.
    #[inline]
    pub(super) fn with_or_count_always(&self, f: impl FnOnce(&mut Lane)) {
        if !self.with(f) {
            self.unreachable.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the innermost span that is open on this thread, which may be none; `None` if that is not known.
    #[inline]
    pub(super) fn innermost(&self) -> Option<Option<NonZeroU64>> {
        let innermost = LANES.try_with(|lanes| {
            let lanes = lanes.try_borrow().ok()?;
            match lanes.iter().find(|lane| lane.profiler() == self.profiler) {
                Some(lane) => lane.innermost(),
                // The thread has not entered a span yet.
                None => Some(None),
            }
        });
        innermost.ok().flatten()
    }

    #[cold]
    fn open(&self, lanes: &mut Vec<Lane>) -> usize {
        lanes.retain(|lane| !lane.is_abandoned());
        let ring = self.lock_rings().take_free();
        let ring = ring.unwrap_or_else(|| Lane::ring(self.capacity));
        let (lane, reader) = Lane::new(self.profiler, self.control(), ThreadInfo::of_this_thread(), ring);
        let mut rings = self.lock_rings();
        rings.keep_stack(&reader);
        rings.new.push(reader);
        drop(rings);
        lanes.push(lane);
        lanes.len() - 1
    }

    fn lock_rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name and the stack of each thread.
    pub(super) fn stacks(&self) -> Vec<(String, Arc<SharedStack>)> {
        let rings = self.lock_rings();
        rings.stacks.iter().filter_map(|(name, stack)| Some((name.clone(), stack.upgrade()?))).collect()
    }

    /// The readers of lanes made since the last call.
    pub(super) fn take_new(&self) -> Vec<LaneReader> {
        std::mem::take(&mut self.lock_rings().new)
    }

    /// Keeps the ring of a thread that has ended, for reuse by a new one.
    pub(super) fn reuse(&self, reader: LaneReader) {
        if let Some(ring) = reader.into_ring() {
            self.lock_rings().keep(ring);
        }
    }

    /// Records for which there was no lane since the last call.
    pub(super) fn take_unreachable(&self) -> u64 {
        self.unreachable.swap(0, Ordering::Relaxed)
    }
}

impl Rings {
    /// The maximum number of rings kept. More are freed, since that many threads may never be alive at once again.
    const FREE: usize = 32;

    /// Takes the ring of a thread that has ended, if there is one.
    fn take_free(&mut self) -> Option<Ring> {
        // While nothing is recorded, the collector does not take the readers, and threads may come and go.
        if self.free.is_empty() && self.new.len() >= 32 && self.new.len().is_power_of_two() {
            let done: Vec<_> = self.new.extract_if(.., |reader| reader.is_done()).collect();
            done.into_iter().filter_map(LaneReader::into_ring).for_each(|ring| self.keep(ring));
        }
        self.free.pop()
    }

    fn keep_stack(&mut self, reader: &LaneReader) {
        if self.stacks.len() >= 32 && self.stacks.len().is_power_of_two() {
            self.stacks.retain(|(_, stack)| stack.strong_count() > 0);
        }
        self.stacks.push((reader.thread().name.to_string(), reader.stack()));
    }

    fn keep(&mut self, ring: Ring) {
        if self.free.len() < Self::FREE {
            self.free.push(ring);
        }
    }
}
