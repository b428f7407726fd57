//! Calls the functions as NCCL does, without a library, so that Miri can check what they read.

use super::{
    Collective, Descriptor, MASK_V5, Payload, PointToPoint, ProgramCall, Rest, event, finalize, init_v4, init_v5,
    start, stop,
};
use std::{
    ffi::{CStr, c_void},
    mem::MaybeUninit,
    ptr::{null, null_mut},
};

/// Starts an event whose payload is initialized only as far as NCCL does.
fn begin<T: Copy + Into<u64>>(
    context: *mut c_void,
    kind: T,
    parent: *mut c_void,
    fill: impl FnOnce(*mut Payload),
) -> *mut c_void {
    let mut descriptor = MaybeUninit::<Descriptor<T>>::uninit();
    let at = descriptor.as_mut_ptr();
    // SAFETY: there is room for all of it.
    unsafe {
        (&raw mut (*at).kind).write(kind);
        (&raw mut (*at).rest.parent).write(parent);
        (&raw mut (*at).rest.rank).write(0);
        fill(&raw mut (*at).rest.payload);
    }
    let mut handle = null_mut();
    assert_eq!(start::<T>(context, &raw mut handle, at), 0);
    handle
}

fn collective(function: &'static CStr, sequence: u64) -> impl FnOnce(*mut Payload) {
    move |payload| {
        let filled = Collective {
            sequence,
            function: function.as_ptr(),
            send: null(),
            receive: null_mut(),
            count: 8,
            root: 0,
            datatype: c"ncclInt8".as_ptr(),
            channels: 1,
            warps: 1,
            algorithm: c"RING".as_ptr(),
            protocol: null(),
        };
        // SAFETY: the payload has room for all of its kinds.
        unsafe { payload.cast::<Collective>().write(filled) }
    }
}

#[test]
fn only_what_an_event_has_is_read() {
    let (mut context, mut mask) = (null_mut(), 0);
    for version in [4, 5] {
        match version {
            4 => init_v4(&raw mut context, &raw mut mask, null(), 1, 1, 2, 0, null()),
            _ => init_v5::<MASK_V5>(&raw mut context, 1, &raw mut mask, c"name".as_ptr(), 1, 2, 0, null()),
        };
        assert!(!context.is_null() && mask > 0);
        let launched = match version {
            4 => begin(context, event::COLLECTIVE as u8, null_mut(), collective(c"AllReduce", 0)),
            _ => {
                let program = |payload: *mut Payload| {
                    let (function, datatype) = (c"AllReduce".as_ptr(), c"ncclInt8".as_ptr());
                    // SAFETY: as above.
                    unsafe { payload.cast::<ProgramCall>().write(ProgramCall { function, count: 8, datatype }) }
                };
                let entered = begin(context, event::COLLECTIVE_CALL, null_mut(), program);
                begin(context, event::COLLECTIVE, entered, collective(c"AllReduce", 0))
            }
        };
        let send = |payload: *mut Payload| {
            let (function, datatype) = (c"Send".as_ptr(), c"ncclInt8".as_ptr());
            let filled = PointToPoint { function, buffer: null_mut(), datatype, count: 8, peer: 1 };
            // SAFETY: as above.
            unsafe { payload.cast::<PointToPoint>().write(filled) }
        };
        assert!(!begin(context, event::POINT_TO_POINT, null_mut(), send).is_null());
        // The rest of their payload is not initialized.
        let channel = begin(context, event::KERNEL_CHANNEL, launched, |_| ());
        assert!(!channel.is_null() && !begin(context, event::GROUP, null_mut(), |_| ()).is_null());
        assert!(begin(context, 1_u64 << 20, null_mut(), |_| ()).is_null());
        stop(channel);
        stop(launched);
        finalize(context);
    }
}

/// The offset of the payload does not depend on the version.
#[test]
fn the_payload_is_at_the_same_place_in_all_versions() {
    assert_eq!(size_of::<Descriptor<u8>>(), size_of::<Descriptor<u64>>());
    assert_eq!(std::mem::offset_of!(Rest, payload) + std::mem::offset_of!(Descriptor<u8>, rest), 24);
}
