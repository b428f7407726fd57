//! Spans as NVTX ranges, for a tool such as Nsight Compute that runs the program: see `docs/nvtx.md`.

use super::Host;
use crate::{heap::Uncounted, recording::RegistryId, thread};
use nvtx_sys::{Domain, Error, Message, RangeId, RegisteredString};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, cell::RefCell, ffi::CString, sync::OnceLock};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// The ranges of a profiler's spans: the tool that receives them, or the reason why none does.
#[derive(Debug)]
pub(super) struct NvtxRanges(Result<&'static Domain, Error>);

/// The ranges of a thread. Those of all profilers, as the tool nests them all in one stack.
#[derive(Debug, Default)]
struct ThreadRanges {
    /// The open ranges, outermost first.
    open: Vec<Open>,
    /// The names of callsites, by the address of their metadata.
    names: FxHashMap<usize, RegisteredString>,
}

#[derive(Debug)]
struct Open {
    profiler: u64,
    span: RegistryId,
    name: Name,
    /// The range, if it is not one of the thread's stack.
    started: Option<RangeId>,
}

#[derive(Debug)]
enum Name {
    /// The name in the source.
    Callsite(RegisteredString),
    /// The name that a field gives to the span.
    Field(CString),
}

thread_local!(static RANGES: RefCell<ThreadRanges> = RefCell::default());

/// The most ranges that are open on a thread. Spans nested deeper than this have none.
const MOST_OPEN: usize = 1024;

impl Host {
    /// Makes spans NVTX ranges, if a tool asks for them.
    pub(crate) fn use_nvtx(&mut self) {
        static DOMAIN: OnceLock<Result<Domain, Error>> = OnceLock::new();
        let domain = DOMAIN.get_or_init(|| Domain::new(c"kernspan"));
        self.nvtx = Some(NvtxRanges(domain.as_ref().map_err(Clone::clone)));
    }

    /// The reason why a tool that asks for ranges does not receive them.
    pub(crate) fn nvtx_problem(&self) -> Option<String> {
        let NvtxRanges(domain) = self.nvtx.as_ref()?;
        domain.as_ref().err().filter(|error| **error != Error::NotAsked).map(Error::to_string)
    }

    fn nvtx_domain(&self) -> Option<&'static Domain> {
        self.nvtx.as_ref().and_then(|NvtxRanges(domain)| domain.as_ref().ok().copied())
    }

    /// Whether a tool receives ranges.
    pub(super) fn has_ranges(&self) -> bool {
        self.nvtx_domain().is_some()
    }

    /// Begins the range of a span that is entered.
    #[cold]
    pub(super) fn enter_range<'a, S: LookupSpan<'a>>(&self, id: RegistryId, span: Option<SpanRef<'a, S>>) {
        let (Some(domain), Some(span)) = (self.nvtx_domain(), span) else { return };
        if thread::is_muted() {
            return;
        }
        let _uncounted = Uncounted::begin();
        let callsite = span.metadata();
        with_ranges(|ranges| {
            if ranges.open.len() >= MOST_OPEN {
                return;
            }
            let name = match self.name_of(id, callsite) {
                Cow::Owned(name) => Name::Field(c_string(&name)),
                Cow::Borrowed(name) => {
                    let key = std::ptr::from_ref(callsite).addr();
                    Name::Callsite(*ranges.names.entry(key).or_insert_with(|| domain.register(&c_string(name))))
                }
            };
            domain.push(name.message());
            ranges.open.push(Open { profiler: self.lanes.profiler(), span: id, name, started: None });
        });
    }

    /// Ends the range of a span that is exited.
    ///
    /// A tool nests the ranges of a thread. If spans are exited in another order, those inside that stay open continue
    /// as ranges that may overlap.
    #[cold]
    pub(super) fn exit_range(&self, id: RegistryId) {
        let Some(domain) = self.nvtx_domain() else { return };
        let profiler = self.lanes.profiler();
        let _uncounted = Uncounted::begin();
        with_ranges(|ranges| {
            let is_it = |open: &Open| open.span == id && open.profiler == profiler;
            let Some(index) = ranges.open.iter().rposition(is_it) else { return };
            let ended = ranges.open.remove(index);
            if let Some(range) = ended.started {
                return domain.end(range);
            }
            let mut pushed = 1;
            for inner in ranges.open[index..].iter_mut().filter(|inner| inner.started.is_none()) {
                inner.started = Some(domain.start(inner.name.message()));
                pushed += 1;
            }
            (0..pushed).for_each(|_| domain.pop());
        });
    }
}

/// Calls `f` with the ranges of this thread, unless they are in use or gone, as at the end of the thread.
fn with_ranges(f: impl FnOnce(&mut ThreadRanges)) {
    let _ = RANGES.try_with(|ranges| ranges.try_borrow_mut().map(|mut ranges| f(&mut ranges)));
}

impl Name {
    fn message(&self) -> Message<'_> {
        match self {
            Self::Callsite(name) => (*name).into(),
            Self::Field(name) => name.as_c_str().into(),
        }
    }
}

/// Returns a string for C, up to the first 0.
fn c_string(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}
