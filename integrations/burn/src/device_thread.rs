use crate::stream_origins::{StreamOrigins, ThreadOrigins};
use burn_std::stream::StreamId;
use kernspan::framework::{DeviceWork, HandOver, Origin};
use rustc_hash::FxHashMap;
#[cfg(feature = "fusion")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::{
    cell::RefCell,
    time::{Duration, Instant},
};
use tracing::span::EnteredSpan;

thread_local! {
    static STATE: RefCell<Option<DeviceThread>> = const { RefCell::new(None) };
}

/// The state of the thread that launches a device's kernels. It decides which span each of the thread's calls belongs
/// to.
#[derive(Debug)]
pub(crate) struct DeviceThread {
    hand_over: HandOver,
    streams: StreamOrigins,
    /// The origin of the block of fused operations that is running, if memory is recorded.
    block: Option<Origin>,
    /// The announced next launch of each stream.
    pending: FxHashMap<StreamId, PendingLaunch>,
    /// Whether the fusion thread is in the window, too, and announces each of its launches from now on.
    #[cfg(feature = "fusion")]
    fusion_announces: bool,
    /// Open from the first launch of an autotuning until the next other work.
    autotune: Option<Autotune>,
    /// Compiled kernels, with their compile times, that no event has reported yet.
    compiled: Vec<(&'static str, Duration)>,
}

/// An announced launch.
#[derive(Clone, Copy, Debug)]
struct PendingLaunch {
    kernel: &'static str,
    owner: Owner,
    /// Whether code was loaded for it.
    loaded: bool,
    since: Instant,
}

/// The owner of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The origin of the first operation that was fused into the kernel, if it is known.
    #[cfg_attr(not(feature = "fusion"), expect(dead_code, reason = "only fusion knows better than the stream"))]
    Origin(Option<Origin>),
    /// The device thread itself, which measures which kernel is fastest.
    Autotune,
}

/// An autotuning in progress.
#[derive(Debug)]
struct Autotune {
    span: EnteredSpan,
    launches: u64,
    since: Instant,
    /// The time of the latest launch. The span itself ends later, with the next work from another thread.
    latest: Instant,
}

impl DeviceThread {
    /// Starts attribution on the calling thread, which launches a device's kernels; returns false if it was started
    /// already.
    pub(crate) fn begin(hand_over: HandOver, threads: ThreadOrigins) -> bool {
        if Self::is_here() {
            return false;
        }
        hand_over.adopt_each(|work| with_state(|state| state.attribute(work)).flatten());
        let new = Self {
            hand_over,
            streams: StreamOrigins::new(threads),
            block: None,
            pending: FxHashMap::default(),
            #[cfg(feature = "fusion")]
            fusion_announces: false,
            autotune: None,
            compiled: Vec::new(),
        };
        STATE.with_borrow_mut(|state| *state = Some(new));
        true
    }

    /// Ends attribution on the calling thread.
    pub(crate) fn end() {
        if let Some(state) = STATE.with_borrow_mut(Option::take) {
            state.hand_over.release();
        }
    }

    /// Returns whether the calling thread is a device thread.
    pub(crate) fn is_here() -> bool {
        STATE.try_with(|state| state.try_borrow().map_or(true, |state| state.is_some())).unwrap_or(false)
    }

    /// Announces a launch of autotuning.
    pub(crate) fn expect_autotune_launch(kernel: &'static str) {
        let now = Instant::now();
        let open = with_state(|state| {
            let launch = PendingLaunch { kernel, owner: Owner::Autotune, loaded: false, since: now };
            state.pending.insert(StreamId::current(), launch);
            state.autotune.as_mut().map(|autotune| {
                autotune.launches += 1;
                autotune.latest = now;
            })
        });
        // A span is entered only while the state is not borrowed, because entering runs code of other layers.
        if open == Some(None) {
            let (launches, milliseconds) = (tracing::field::Empty, tracing::field::Empty);
            let span = tracing::info_span!("autotune", kernel = short(kernel), launches, milliseconds).entered();
            with_state(|state| state.autotune = Some(Autotune { span, launches: 1, since: now, latest: now }));
        }
    }

    /// Announces the next launch of this stream, on behalf of `origin`.
    #[cfg(feature = "fusion")]
    pub(crate) fn expect_launch(kernel: &'static str, origin: Option<Origin>) {
        Self::finish_autotune();
        with_state(|state| {
            let launch = PendingLaunch { kernel, owner: Owner::Origin(origin), loaded: false, since: Instant::now() };
            state.pending.insert(StreamId::current(), launch);
        });
    }

    /// Announces that a block of fused operations runs for this origin, or that none does any more. It allocates memory
    /// before it launches, and perhaps after the span that requested it has ended.
    #[cfg(feature = "fusion")]
    pub(crate) fn set_block(origin: Option<Origin>) {
        with_state(|state| state.block = origin);
    }

    /// Announces a launch from a user's thread, which no operation was fused into.
    #[cfg(feature = "fusion")]
    pub(crate) fn expect_direct_launch() {
        DIRECT_LAUNCHES.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the origin of work that arrives on this stream from now on.
    pub(crate) fn set_origin(origin: Origin) {
        Self::finish_autotune();
        with_state(|state| state.streams.set(StreamId::current(), origin));
    }

    pub(crate) fn open_window(opened: Origin) {
        with_state(|state| {
            state.pending.clear();
            state.block = None;
            state.streams.open(opened);
            #[cfg(feature = "fusion")]
            {
                state.fusion_announces = false;
            }
        });
    }

    /// Notes that the fusion thread announces each of its launches from now on.
    #[cfg(feature = "fusion")]
    pub(crate) fn fusion_is_open() {
        with_state(|state| state.fusion_announces = true);
    }

    pub(crate) fn close_window() {
        Self::finish_autotune();
        with_state(|state| state.streams.close());
    }

    /// Ends an autotuning in progress, and reports compiled kernels.
    fn finish_autotune() {
        let finished = with_state(|state| {
            let autotune = state.autotune.take();
            // A kernel that could not be compiled was announced but never launched.
            if autotune.is_some() {
                state.pending.retain(|_, launch| launch.owner != Owner::Autotune);
            }
            (autotune, std::mem::take(&mut state.compiled))
        });
        let Some((autotune, compiled)) = finished else { return };
        for (kernel, time) in compiled {
            let milliseconds = time.as_secs_f64() * 1e3;
            tracing::debug!(kernel = short(kernel), milliseconds, "compiled");
        }
        if let Some(Autotune { span, launches, since, latest }) = autotune {
            span.record("launches", launches);
            span.record("milliseconds", latest.duration_since(since).as_secs_f64() * 1e3);
        }
    }

    /// Returns the origin of a call that the thread has just made; `None` if it is the thread's own or unknown.
    fn attribute(&mut self, work: DeviceWork) -> Option<Origin> {
        let stream = StreamId::current();
        let pending = match work {
            DeviceWork::Launch => self.pending.remove(&stream),
            _ => self.pending.get(&stream).copied(),
        };
        if work == DeviceWork::Load
            && let Some(pending) = self.pending.get_mut(&stream)
        {
            pending.loaded = true;
        }
        if let Some(PendingLaunch { kernel, loaded: true, since, .. }) = pending
            && work == DeviceWork::Launch
        {
            self.compiled.push((kernel, since.elapsed()));
        }
        if !self.streams.is_open() {
            return Some(self.hand_over.before());
        }
        match pending {
            // A small copy before a launch is the kernel's arguments; a large one is from a user's thread, in between.
            Some(_) if is_large_copy(work) => self.streams.get(stream),
            None if work == DeviceWork::Memory && self.autotune.is_some() => None,
            None if work == DeviceWork::Memory && self.block.is_some() => self.block,
            Some(PendingLaunch { owner: Owner::Autotune, .. }) => None,
            Some(PendingLaunch { owner: Owner::Origin(origin), .. }) => origin,
            #[cfg(feature = "fusion")]
            None if work == DeviceWork::Launch && !self.fusion_announces => Some(self.hand_over.before()),
            // A launch that was not announced means that another library observes launches now.
            #[cfg(feature = "fusion")]
            None if work == DeviceWork::Launch && !take_direct_launch() => None,
            None => self.streams.get(stream),
        }
    }
}

/// Returns whether the work is a copy that is too large to be a kernel's shapes and strides, which are usually some
/// dozen bytes.
fn is_large_copy(work: DeviceWork) -> bool {
    const MAX_ARGUMENTS: u64 = 1024;
    matches!(work, DeviceWork::Copy { bytes, .. } if bytes.is_none_or(|bytes| bytes > MAX_ARGUMENTS))
}

/// The number of announced launches from users' threads that have not been made yet. With fusion there are few, for
/// example to read a tensor that is not contiguous. Their device is not known.
#[cfg(feature = "fusion")]
static DIRECT_LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Counts a launch as one of the announced direct launches; returns false if there is none left.
#[cfg(feature = "fusion")]
fn take_direct_launch() -> bool {
    DIRECT_LAUNCHES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |launches| launches.checked_sub(1)).is_ok()
}

/// Runs a function on the calling thread's state; `None` if it is not a device thread or the state is borrowed.
fn with_state<T>(f: impl FnOnce(&mut DeviceThread) -> T) -> Option<T> {
    STATE.try_with(|state| state.try_borrow_mut().ok()?.as_mut().map(f)).ok().flatten()
}

/// Returns a type's name without its path and its generic parameters.
fn short(name: &str) -> &str {
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_are_short() {
        assert_eq!(short("cubek_matmul::launch::Matmul<cubecl_core::frontend::F32, (a::B, c::D<e::F>)>"), "Matmul");
        assert_eq!((short(""), short("plain")), ("", "plain"));
    }
}
