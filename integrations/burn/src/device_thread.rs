//! The thread that launches a device's kernels, and on whose behalf it does.

use crate::streams::{Streams, Threads};
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
    static HERE: RefCell<Option<DeviceThread>> = const { RefCell::new(None) };
}

/// What the thread knows.
#[derive(Debug)]
pub(crate) struct DeviceThread {
    hand_over: HandOver,
    streams: Streams,
    /// The launch that comes next on a stream.
    next: FxHashMap<StreamId, Next>,
    /// Whether the thread that fuses is in the window, too, and tells of each of its launches from here on.
    #[cfg(feature = "fusion")]
    told: bool,
    /// Open from the first launch of a measurement until the next piece of work.
    tuning: Option<Tuning>,
    /// Kernels compiled that have not been told of.
    compiled: Vec<(&'static str, Duration)>,
}

/// A launch that is about to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(crate) kernel: &'static str,
    pub(crate) owner: Owner,
    /// Whether code was loaded for it.
    loaded: bool,
    since: Instant,
}

/// Whose a launch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Who asked for the operations that were fused into it, if that is known.
    #[cfg_attr(not(feature = "fusion"), expect(dead_code, reason = "only fusion knows better than the stream"))]
    Asked(Option<Origin>),
    /// Nobody's but the device's: it measures which kernel is quickest.
    Tuning,
}

#[derive(Debug)]
struct Tuning {
    span: EnteredSpan,
    launches: u64,
    since: Instant,
    /// When the last launch was made: the span ends only when the thread next hears from another.
    last: Instant,
}

impl DeviceThread {
    /// Makes the calling thread, which is a device's, known as such; false if it was already.
    pub(crate) fn begin(hand_over: HandOver, threads: Threads) -> bool {
        if Self::is_here() {
            return false;
        }
        hand_over.adopt_each(|work| with_here(|here| here.whose(work)).flatten());
        let streams = Streams::new(threads);
        let (next, compiled) = (FxHashMap::default(), Vec::new());
        let here = Self {
            hand_over,
            streams,
            next,
            #[cfg(feature = "fusion")]
            told: false,
            tuning: None,
            compiled,
        };
        HERE.with_borrow_mut(|place| *place = Some(here));
        true
    }

    pub(crate) fn end() {
        if let Some(here) = HERE.with_borrow_mut(Option::take) {
            here.hand_over.release();
        }
    }

    /// Whether the calling thread is one.
    pub(crate) fn is_here() -> bool {
        HERE.try_with(|here| here.try_borrow().map_or(true, |here| here.is_some())).unwrap_or(false)
    }

    /// The next launch is made to measure a kernel.
    pub(crate) fn tunes(kernel: &'static str) {
        let now = Instant::now();
        let launches = with_here(|here| {
            here.next.insert(StreamId::current(), Next { kernel, owner: Owner::Tuning, loaded: false, since: now });
            here.tuning.as_mut().map(|tuning| {
                tuning.launches += 1;
                tuning.last = now;
            })
        });
        // Spans are not entered while the thread's own is borrowed.
        if launches == Some(None) {
            let (launches, milliseconds) = (tracing::field::Empty, tracing::field::Empty);
            let span = tracing::info_span!("autotune", kernel = short(kernel), launches, milliseconds).entered();
            with_here(|here| here.tuning = Some(Tuning { span, launches: 1, since: now, last: now }));
        }
    }

    /// The next launch on this stream is made on behalf of `owner`.
    #[cfg(feature = "fusion")]
    pub(crate) fn launches(kernel: &'static str, owner: Option<Origin>) {
        Self::goes_on();
        with_here(|here| {
            let next = Next { kernel, owner: Owner::Asked(owner), loaded: false, since: Instant::now() };
            here.next.insert(StreamId::current(), next);
        });
    }

    /// What comes on this stream from now on comes from `origin`.
    pub(crate) fn changes(origin: Origin) {
        Self::goes_on();
        with_here(|here| here.streams.change(StreamId::current(), origin));
    }

    pub(crate) fn opens(opened: Origin) {
        with_here(|here| {
            here.next.clear();
            here.streams.open(opened);
            #[cfg(feature = "fusion")]
            {
                here.told = false;
            }
        });
    }

    /// The thread that fuses tells of each of its launches from here on.
    #[cfg(feature = "fusion")]
    pub(crate) fn is_told() {
        with_here(|here| here.told = true);
    }

    /// A launch comes that no operation was fused into, from a user's thread.
    #[cfg(feature = "fusion")]
    pub(crate) fn launches_directly() {
        DIRECT.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closes() {
        Self::goes_on();
        with_here(|here| here.streams.close());
    }

    /// Whatever was measured or compiled is done.
    fn goes_on() {
        let done = with_here(|here| {
            let tuning = here.tuning.take();
            // A kernel that could not be compiled was never launched.
            if tuning.is_some() {
                here.next.retain(|_, next| next.owner != Owner::Tuning);
            }
            (tuning, std::mem::take(&mut here.compiled))
        });
        let Some((tuning, compiled)) = done else { return };
        for (kernel, took) in compiled {
            let milliseconds = took.as_secs_f64() * 1e3;
            tracing::debug!(kernel = short(kernel), milliseconds, "compiled");
        }
        if let Some(Tuning { span, launches, since, last }) = tuning {
            span.record("launches", launches);
            span.record("milliseconds", last.duration_since(since).as_secs_f64() * 1e3);
        }
    }

    /// On whose behalf the call is made that the thread has just made.
    fn whose(&mut self, work: DeviceWork) -> Option<Origin> {
        let stream = StreamId::current();
        let next = match work {
            DeviceWork::Launch => self.next.remove(&stream),
            _ => self.next.get(&stream).copied(),
        };
        if work == DeviceWork::Load
            && let Some(next) = self.next.get_mut(&stream)
        {
            next.loaded = true;
        }
        if let Some(Next { kernel, loaded: true, since, .. }) = next
            && work == DeviceWork::Launch
        {
            self.compiled.push((kernel, since.elapsed()));
        }
        if !self.streams.is_open() {
            return Some(self.hand_over.before());
        }
        match next {
            // What a launch needs to know comes with it; other copies are made by a user's thread, in between.
            Some(_) if matches!(work, DeviceWork::Copy { bytes, .. } if bytes.is_none_or(|bytes| bytes > MAX_ARGUMENTS)) => {
                self.streams.origin(stream)
            }
            None if work == DeviceWork::Memory && self.tuning.is_some() => None,
            Some(Next { owner: Owner::Tuning, .. }) => None,
            Some(Next { owner: Owner::Asked(owner), .. }) => owner,
            #[cfg(feature = "fusion")]
            None if work == DeviceWork::Launch && !self.told => Some(self.hand_over.before()),
            // If nobody told of it, somebody else observes launches now.
            #[cfg(feature = "fusion")]
            None if work == DeviceWork::Launch && !is_direct() => None,
            None => self.streams.origin(stream),
        }
    }
}

/// The most bytes of shapes and strides that are copied for a launch. Some dozens are usual.
const MAX_ARGUMENTS: u64 = 1024;

/// Launches made by users' threads that have not come by yet. With fusion there are few, for reading what is not contiguous, say. It is not
/// known which device they are for.
#[cfg(feature = "fusion")]
static DIRECT: AtomicU64 = AtomicU64::new(0);

/// Whether a launch that nobody told of is one of those.
#[cfg(feature = "fusion")]
fn is_direct() -> bool {
    DIRECT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |launches| launches.checked_sub(1)).is_ok()
}

fn with_here<T>(f: impl FnOnce(&mut DeviceThread) -> T) -> Option<T> {
    HERE.try_with(|here| here.try_borrow_mut().ok()?.as_mut().map(f)).ok().flatten()
}

/// A type's name, without its path and what it is generic over.
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
