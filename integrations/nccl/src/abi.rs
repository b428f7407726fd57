//! NCCL's profiler interface, versions 4 to 6: C layouts, the functions that NCCL calls, and nothing else.
//!
//! The layouts are those of NCCL 2.26 to 2.30 (`plugins/profiler/example/nccl/profiler_v4.h`, `v5.h` and `v6.h`). All
//! pointers come from NCCL and are valid during the call. Contexts and handles are numbers, which are never
//! dereferenced: see [`Handle`].

#![allow(unsafe_code, reason = "NCCL calls these functions with pointers")]

#[cfg(test)]
mod tests;

use crate::{
    communicators::{COMMUNICATORS, Communicators, Handle, HandleKind},
    ring::{Call, CallKind},
};
use std::{
    ffi::{c_char, c_int, c_void},
    mem::offset_of,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
};

/// `ncclSuccess`. The plugin never fails: NCCL would go on without it anyway.
const SUCCESS: c_int = 0;

/// Types of events, `ncclProfile…`. Others are ignored.
mod event {
    pub(super) const GROUP: u64 = 1;
    pub(super) const COLLECTIVE: u64 = 1 << 1;
    pub(super) const POINT_TO_POINT: u64 = 1 << 2;
    pub(super) const KERNEL_CHANNEL: u64 = 1 << 6;
    pub(super) const COLLECTIVE_CALL: u64 = 1 << 9;
    pub(super) const POINT_TO_POINT_CALL: u64 = 1 << 10;
    pub(super) const COPY_ENGINE: u64 = 1 << 12;
}

/// The events that version 4 has.
const MASK_V4: u64 = event::COLLECTIVE | event::POINT_TO_POINT | event::KERNEL_CHANNEL;
/// From version 5 on, the calls of the program have events as well.
const MASK_V5: u64 = MASK_V4 | event::COLLECTIVE_CALL | event::POINT_TO_POINT_CALL;
/// Version 6 has collectives that copy engines carry out, without a kernel.
const MASK_V6: u64 = MASK_V5 | event::COPY_ENGINE;

/// A descriptor of an event. In version 4 the type is one byte, and the seven behind it are padding.
#[repr(C)]
struct Descriptor<T> {
    kind: T,
    rest: Rest,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Rest {
    parent: *mut c_void,
    rank: c_int,
    payload: Payload,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Payload {
    collective: Collective,
    point_to_point: PointToPoint,
    collective_call: ProgramCall,
}

/// `coll`, and the first part of `ceColl`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Collective {
    sequence: u64,
    function: *const c_char,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    root: c_int,
    datatype: *const c_char,
    channels: u8,
    warps: u8,
    algorithm: *const c_char,
    protocol: *const c_char,
}

/// `p2p`. Its number of channels, which follows, is not initialized in version 4.
#[repr(C)]
#[derive(Clone, Copy)]
struct PointToPoint {
    function: *const c_char,
    buffer: *mut c_void,
    datatype: *const c_char,
    count: usize,
    peer: c_int,
}

/// The first parts of `collApi` and `p2pApi`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramCall {
    function: *const c_char,
    count: usize,
    datatype: *const c_char,
}

const _: () = {
    assert!(offset_of!(Descriptor<u8>, rest) == 8 && offset_of!(Descriptor<u64>, rest) == 8);
    assert!(offset_of!(Rest, payload) == 16);
    assert!(offset_of!(Collective, datatype) == 48 && offset_of!(Collective, channels) == 56);
    assert!(offset_of!(Collective, algorithm) == 64 && offset_of!(Collective, protocol) == 72);
    assert!(offset_of!(PointToPoint, count) == 24 && offset_of!(PointToPoint, peer) == 32);
};

/// The names that NCCL looks for, each with its table: the name of the plugin is added in front of these functions.
pub(crate) fn tables() -> [(&'static str, [usize; 5]); 3] {
    let start_v4 = start::<u8> as StartEvent<u8> as usize;
    let start_v5 = start::<u64> as StartEvent<u64> as usize;
    let (stop, record) = (stop as StopEvent as usize, record as RecordState as usize);
    let finalize = finalize as StopEvent as usize;
    [
        ("ncclProfiler_v4", [init_v4 as InitV4 as usize, start_v4, stop, record, finalize]),
        ("ncclProfiler_v5", [init_v5::<MASK_V5> as InitV5 as usize, start_v5, stop, record, finalize]),
        ("ncclProfiler_v6", [init_v5::<MASK_V6> as InitV5 as usize, start_v5, stop, record, finalize]),
    ]
}

/// NCCL's function for log messages. It is variadic, and not called.
type Logger = *const c_void;
type InitV4 = extern "C" fn(*mut *mut c_void, *mut c_int, *const c_char, u64, c_int, c_int, c_int, Logger) -> c_int;
type InitV5 = extern "C" fn(*mut *mut c_void, u64, *mut c_int, *const c_char, c_int, c_int, c_int, Logger) -> c_int;
type StartEvent<T> = extern "C" fn(*mut c_void, *mut *mut c_void, *const Descriptor<T>) -> c_int;
type StopEvent = extern "C" fn(*mut c_void) -> c_int;
type RecordState = extern "C" fn(*mut c_void, c_int, *const c_void) -> c_int;

extern "C" fn init_v4(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    communicator: u64,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _: Logger,
) -> c_int {
    init(context, mask, MASK_V4, name, communicator, [nodes, ranks, rank])
}

/// The events of versions 5 and 6 differ, and nothing else.
extern "C" fn init_v5<const MASK: u64>(
    context: *mut *mut c_void,
    communicator: u64,
    mask: *mut c_int,
    name: *const c_char,
    nodes: c_int,
    ranks: c_int,
    rank: c_int,
    _: Logger,
) -> c_int {
    init(context, mask, MASK, name, communicator, [nodes, ranks, rank])
}

fn init(
    context: *mut *mut c_void,
    mask: *mut c_int,
    events: u64,
    name: *const c_char,
    communicator: u64,
    numbers: [c_int; 3],
) -> c_int {
    guarded(|| {
        let [nodes, ranks, rank] = numbers.map(|number| u32::try_from(number).unwrap_or(0));
        // SAFETY: NCCL passes a string that ends with a zero, or null.
        let name = unsafe { text(name) };
        let opened = COMMUNICATORS.open(communicator, name, nodes, ranks, rank);
        if !context.is_null() {
            // SAFETY: it points to where NCCL keeps the context.
            unsafe { context.write(pointer(opened)) };
        }
        if !mask.is_null() {
            let events = COMMUNICATORS.events(events, event::KERNEL_CHANNEL);
            // SAFETY: it points to NCCL's mask, which is the same for all communicators.
            unsafe { mask.write(c_int::try_from(events).unwrap_or(0)) };
        }
    })
}

extern "C" fn start<T: Copy + Into<u64>>(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *const Descriptor<T>,
) -> c_int {
    guarded(|| {
        if handle.is_null() {
            return;
        }
        // SAFETY: it points to where NCCL keeps the handle. It is null unless the event is followed.
        unsafe { handle.write(std::ptr::null_mut()) };
        if descriptor.is_null() {
            return;
        }
        // SAFETY: NCCL passes a descriptor of this version. Its type, parent and rank are always initialized.
        let (kind, parent) =
            unsafe { ((&raw const (*descriptor).kind).read().into(), (&raw const (*descriptor).rest.parent).read()) };
        // SAFETY: the descriptor has a payload, whose type `begin` takes into account.
        let payload = unsafe { &raw const (*descriptor).rest.payload };
        // SAFETY: as above.
        let begun = unsafe { begin(&COMMUNICATORS, number(context), kind, number(parent), payload) };
        // SAFETY: as above.
        unsafe { handle.write(pointer(begun)) };
    })
}

/// Begins an event, and returns its handle; 0 if it is not followed.
///
/// # Safety
///
/// The payload is valid for events of this kind.
unsafe fn begin(all: &Communicators, context: u64, kind: u64, parent: u64, payload: *const Payload) -> u64 {
    match kind {
        // NCCL counts the collectives of CUDA graphs only if their group has a handle.
        event::GROUP => Handle::GROUP,
        event::COLLECTIVE | event::COPY_ENGINE => {
            // SAFETY: these are the fields of both kinds; those behind `datatype` are only in the first.
            let call = unsafe {
                let it = (&raw const (*payload).collective).cast::<Collective>();
                let is_kernel = kind == event::COLLECTIVE;
                Call {
                    kind: if is_kernel { CallKind::Collective } else { CallKind::CopyEngine },
                    sequence: Some((&raw const (*it).sequence).read()),
                    function: name((&raw const (*it).function).read()),
                    dtype: name((&raw const (*it).datatype).read()),
                    count: (&raw const (*it).count).read() as u64,
                    channels: if is_kernel { (&raw const (*it).channels).read().into() } else { 0 },
                    algorithm: if is_kernel { name((&raw const (*it).algorithm).read()) } else { Arc::default() },
                    protocol: if is_kernel { name((&raw const (*it).protocol).read()) } else { Arc::default() },
                    peer: None,
                }
            };
            all.launched(context, parent, call)
        }
        event::POINT_TO_POINT => {
            // SAFETY: these are the fields of this kind.
            let call = unsafe {
                let it = (&raw const (*payload).point_to_point).cast::<PointToPoint>();
                Call {
                    kind: CallKind::PointToPoint,
                    function: name((&raw const (*it).function).read()),
                    dtype: name((&raw const (*it).datatype).read()),
                    count: (&raw const (*it).count).read() as u64,
                    peer: u32::try_from((&raw const (*it).peer).read()).ok(),
                    ..Call::default()
                }
            };
            all.launched(context, parent, call)
        }
        event::COLLECTIVE_CALL | event::POINT_TO_POINT_CALL => {
            // SAFETY: these are the first fields of both kinds.
            let call = unsafe {
                let it = (&raw const (*payload).collective_call).cast::<ProgramCall>();
                let is_collective = kind == event::COLLECTIVE_CALL;
                Call {
                    kind: if is_collective { CallKind::Collective } else { CallKind::PointToPoint },
                    function: name((&raw const (*it).function).read()),
                    dtype: name((&raw const (*it).datatype).read()),
                    count: (&raw const (*it).count).read() as u64,
                    ..Call::default()
                }
            };
            all.entered(context, call)
        }
        event::KERNEL_CHANNEL => all.started(parent),
        _ => 0,
    }
}

extern "C" fn stop(handle: *mut c_void) -> c_int {
    // The end of a collective's event only means that its work is queued.
    guarded(|| {
        if Handle::from_u64(number(handle)).is_some_and(|handle| handle.kind == HandleKind::Channel) {
            COMMUNICATORS.finished(number(handle));
        }
    })
}

extern "C" fn record(_: *mut c_void, _: c_int, _: *const c_void) -> c_int {
    SUCCESS
}

extern "C" fn finalize(context: *mut c_void) -> c_int {
    guarded(|| COMMUNICATORS.close(number(context)))
}

/// Runs `f`, and keeps a panic from unwinding into NCCL.
fn guarded(f: impl FnOnce()) -> c_int {
    let _ = catch_unwind(AssertUnwindSafe(f));
    SUCCESS
}

/// Returns a context or handle as the pointer that NCCL keeps. It has no provenance, since it is never dereferenced.
fn pointer(number: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(number as usize)
}

fn number(pointer: *mut c_void) -> u64 {
    pointer.addr() as u64
}

/// The longest text that is read. NCCL's own names have at most some twenty characters.
const LONGEST_TEXT: usize = 128;

/// Copies a string of C, of which at most [`LONGEST_TEXT`] bytes are read.
///
/// # Safety
///
/// `string` is null, or points to a string that ends with a zero.
unsafe fn text(string: *const c_char) -> String {
    let mut bytes = Vec::new();
    if !string.is_null() {
        for index in 0..LONGEST_TEXT {
            // SAFETY: no zero has been found before this byte.
            match unsafe { string.add(index).read() } {
                0 => break,
                byte => bytes.push(byte as u8),
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The names of functions, types, algorithms and protocols, of which NCCL has some fifty.
static NAMES: RwLock<Vec<Arc<str>>> = RwLock::new(Vec::new());
/// The maximum number of names, so that a program that makes up names takes no more memory.
const MOST_NAMES: usize = 1024;

/// Returns one of NCCL's names, shared with others that are equal.
///
/// # Safety
///
/// As for [`text`].
unsafe fn name(string: *const c_char) -> Arc<str> {
    if string.is_null() {
        return Arc::default();
    }
    let find = |names: &[Arc<str>]| {
        // SAFETY: the caller guarantees it.
        names.iter().find(|name| unsafe { equals(string, name) }).map(Arc::clone)
    };
    let known = find(&NAMES.read().unwrap_or_else(PoisonError::into_inner));
    known.unwrap_or_else(|| {
        // SAFETY: the caller guarantees it.
        let new: Arc<str> = unsafe { text(string) }.into();
        let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
        if names.len() < MOST_NAMES && !names.contains(&new) {
            names.push(Arc::clone(&new));
        }
        new
    })
}

/// Whether a string of C is equal to this name.
///
/// # Safety
///
/// As for [`text`].
unsafe fn equals(string: *const c_char, name: &str) -> bool {
    let mut bytes = name.bytes().chain([0]).enumerate();
    // SAFETY: no zero has been found before the byte that is read, or the iteration would have ended.
    bytes.all(|(index, byte)| unsafe { string.add(index).read() } as u8 == byte)
}
