//! The heap of the process: a global allocator that counts what each thread allocates and frees.
//!
//! [`Allocator`] forwards to another allocator. While a profiler records [`Activity::Heap`](crate::Activity::Heap), it
//! also counts: per thread, from which the layer takes what each span allocated, and for the process as a whole. Some
//! allocations are sampled, in proportion to their size, and followed until they are freed ([`samples`]): these show
//! which memory outlives its step.

#![allow(unsafe_code, reason = "a global allocator is an unsafe trait")]

mod samples;
mod stacks;

pub(crate) use self::samples::{HeapSample, HeapSamples};

use crate::{clock::Clock, thread::is_muted, trace::HeapUse};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint::black_box,
    marker::PhantomData,
    sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};

/// A global allocator that counts for the profiler, on top of another one.
///
/// Install it, and record [`Activity::Heap`](crate::Activity::Heap). The report then has the columns `CPU Mem`, `Self
/// CPU Mem` and `# of Allocs`, and says which spans allocate memory that outlives their step.
///
/// A thread writes what it has allocated when it enters or exits a span. So when a window closes, what other threads
/// have allocated since they last did is missing in their open spans; [samples](crate::Trace::heap_samples) have it.
///
/// While no profiler counts, an allocation costs one load more than without it. While one counts, it costs some
/// nanoseconds: `benches/README.md` has the figures.
///
/// ```
/// use kernspan::{Activity, Allocator, Collected, Profiler};
/// use tracing_subscriber::prelude::*;
///
/// #[global_allocator]
/// static ALLOCATOR: Allocator = Allocator::system();
///
/// let collected = Collected::new();
/// let (layer, profiler) =
///     Profiler::builder().activities([Activity::Host, Activity::Heap]).export(collected.clone()).build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     tracing::info_span!("load").in_scope(|| std::hint::black_box(vec![0_u8; 1000]));
///     tracing::info_span!("compute").in_scope(|| std::hint::black_box([0_u8; 1000]));
/// });
/// profiler.finish()?;
///
/// let trace = collected.only();
/// let heap_of = |name| trace.spans().find(|span| span.name() == name).unwrap().heap();
/// assert_eq!((heap_of("load").allocations, heap_of("load").allocated), (1, 1000));
/// assert_eq!(heap_of("compute").allocations, 0);
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator<A = System>(A);

impl Allocator {
    /// Counts on top of the system's allocator, Rust's default.
    pub const fn system() -> Self {
        Self(System)
    }
}

impl<A> Allocator<A> {
    /// Counts on top of another allocator, such as `mimalloc::MiMalloc`.
    pub const fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

// SAFETY: all calls are passed on as they come. What is counted does not touch the memory, and allocates only with
// counting paused.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Allocator<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let address = unsafe { self.0.alloc(layout) };
        note_allocated(address, layout.size());
        address
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        let address = unsafe { self.0.alloc_zeroed(layout) };
        note_allocated(address, layout.size());
        address
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // Before it is freed: afterwards, another thread may have the same address.
        note_freed(address, layout.size());
        // SAFETY: as the caller promises.
        unsafe { self.0.dealloc(address, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note_freed(address, layout.size());
        // SAFETY: as the caller promises.
        let new = unsafe { self.0.realloc(address, layout, size) };
        match new.is_null() {
            true => note_allocated(address, layout.size()),
            false => note_allocated(new, size),
        }
        new
    }
}

/// Whether a profiler counts.
static COUNTING: AtomicBool = AtomicBool::new(false);
/// The bytes allocated minus those freed while counting. The first threads have parts of their own, which they change
/// without a locked instruction, the most expensive part of counting; all later ones share the last part.
static LIVE: [Part; 256] = [const { Part(AtomicI64::new(0)) }; 256];
const SHARED: usize = LIVE.len() - 1;

/// A part of the bytes in use, on cache lines of its own: processors fetch two lines of 64 bytes at once.
#[repr(align(128))]
struct Part(AtomicI64);

/// What a thread has allocated and freed since counting first began.
struct ThreadHeap {
    allocations: Cell<u64>,
    allocated: Cell<u64>,
    freed: Cell<u64>,
    /// The number of [`Uncounted`] of the thread.
    paused: Cell<u32>,
    /// The part of [`LIVE`] that the thread uses; none until it first allocates.
    part: Cell<usize>,
}

const NO_PART: usize = usize::MAX;

thread_local! {
    // Without a destructor, so that it can be used as long as the thread runs.
    static THREAD: ThreadHeap = const {
        ThreadHeap {
            allocations: Cell::new(0),
            allocated: Cell::new(0),
            freed: Cell::new(0),
            paused: Cell::new(0),
            part: Cell::new(NO_PART),
        }
    };
}

impl ThreadHeap {
    /// Adds to the bytes in use.
    #[inline]
    fn add_live(&self, bytes: i64) {
        let part = match self.part.get() {
            NO_PART => self.take_part(),
            part => part,
        };
        let live = &LIVE[part].0;
        if part == SHARED {
            live.fetch_add(bytes, Ordering::Relaxed);
        } else {
            live.store(live.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
        }
    }

    #[cold]
    fn take_part(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let part = NEXT.fetch_add(1, Ordering::Relaxed).min(SHARED);
        self.part.set(part);
        part
    }
}

#[inline]
fn note_allocated(address: *mut u8, bytes: usize) {
    if is_counting() && !address.is_null() {
        THREAD.with(|thread| {
            if thread.paused.get() == 0 && !is_muted() {
                thread.allocations.set(thread.allocations.get() + 1);
                thread.allocated.set(thread.allocated.get() + bytes as u64);
                thread.add_live(bytes as i64);
                samples::note_allocated(address.addr(), bytes);
            }
        });
    }
}

#[inline]
fn note_freed(address: *mut u8, bytes: usize) {
    if is_counting() {
        THREAD.with(|thread| {
            if thread.paused.get() == 0 && !is_muted() {
                thread.freed.set(thread.freed.get() + bytes as u64);
                thread.add_live(-(bytes as i64));
                samples::note_freed(address.addr());
            }
        });
    }
}

/// Whether a profiler counts.
#[inline]
pub(crate) fn is_counting() -> bool {
    COUNTING.load(Ordering::Relaxed)
}

/// Returns what this thread has allocated and freed so far.
#[inline]
pub(crate) fn of_this_thread() -> HeapUse {
    THREAD.with(|thread| HeapUse {
        allocations: thread.allocations.get(),
        allocated: thread.allocated.get(),
        freed: thread.freed.get(),
    })
}

/// Returns the bytes allocated minus those freed since counting began. Memory from before may have been freed since.
pub(crate) fn live_bytes() -> i64 {
    LIVE.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
}

/// A guard for the profiler's own code: what this thread allocates and frees meanwhile is not counted as the program's
/// heap.
///
/// Memory that is allocated under a guard must be freed under one, too. Spans pay for it in any case, so it costs a few
/// instructions while no profiler counts.
///
/// ```
/// use kernspan::framework::Uncounted;
///
/// let _uncounted = Uncounted::begin();
/// let bookkeeping = vec![0; 100];
/// # drop(bookkeeping);
/// ```
#[must_use = "the heap is counted again when this is dropped"]
#[derive(Debug)]
pub struct Uncounted {
    is_paused: bool,
    /// It belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Uncounted {
    /// Begins not to count.
    #[inline]
    pub fn begin() -> Self {
        Self::begin_if(is_counting())
    }

    /// Begins if the caller knows that a profiler counts.
    #[inline]
    pub(crate) fn begin_if(is_paused: bool) -> Self {
        if is_paused {
            pause();
        }
        Self { is_paused, not_send: PhantomData }
    }
}

impl Drop for Uncounted {
    #[inline]
    fn drop(&mut self) {
        if self.is_paused {
            resume();
        }
    }
}

#[cold]
fn pause() {
    THREAD.with(|thread| thread.paused.set(thread.paused.get() + 1));
}

#[cold]
fn resume() {
    THREAD.with(|thread| thread.paused.set(thread.paused.get() - 1));
}

/// Counts until it is dropped. There is at most one in the process.
#[derive(Debug)]
pub(crate) struct Counting(());

impl Counting {
    /// Begins to count, or says why it cannot. If `lines`, the stacks of samples are captured.
    pub(crate) fn begin(clock: &Clock, lines: bool) -> Result<Self, &'static str> {
        samples::prepare(clock);
        if COUNTING.swap(true, Ordering::Relaxed) {
            return Err("another profiler of this process already counts the heap");
        }
        let counting = Self(());
        LIVE.iter().for_each(|part| part.0.store(0, Ordering::Relaxed));
        let before = of_this_thread().allocations;
        drop(black_box(Box::new(0_u8)));
        match of_this_thread().allocations {
            after if after == before => Err("`Activity::Heap` needs `kernspan::Allocator` as the global allocator: \
                 `#[global_allocator] static ALLOCATOR: kernspan::Allocator = kernspan::Allocator::system();`"),
            _ => {
                if lines {
                    let _uncounted = Uncounted::begin();
                    stacks::begin();
                }
                Ok(counting)
            }
        }
    }
}

impl Counting {
    /// Begins to sample allocations, as a window opens.
    pub(crate) fn open(&self) {
        samples::begin();
    }

    /// Returns the samples, as the window closes.
    pub(crate) fn close(&self) -> HeapSamples {
        samples::take()
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        COUNTING.store(false, Ordering::Relaxed);
        drop(samples::take());
        stacks::end();
    }
}
