//! The buffers that CUPTI fills, and the callbacks by which it requests and returns them.

use super::{buffer::Buffer, message::Message};
use std::sync::{
    Mutex,
    atomic::{AtomicPtr, Ordering},
    mpsc::Sender,
};

/// The pool of free buffers, and the queue of filled ones. There is one sink at a time, since CUPTI's callbacks take no
/// argument that could identify another.
#[derive(Debug)]
pub(super) struct Sink {
    filled: Sender<Message>,
    /// The free buffers; `None` once nothing is read any more.
    free: Mutex<Option<Vec<Buffer>>>,
}

static SINK: AtomicPtr<Sink> = AtomicPtr::new(std::ptr::null_mut());

impl Sink {
    /// The number of free buffers that are kept, and allocated at the start.
    const KEPT: usize = 16;

    /// Makes this the sink. It is never freed, since a callback may be using it: a few hundred bytes per profiler once
    /// closed.
    pub(super) fn install(filled: Sender<Message>) -> &'static Self {
        let free = (0..Self::KEPT).map(|_| Buffer::new()).collect();
        let sink = Box::leak(Box::new(Self { filled, free: Mutex::new(Some(free)) }));
        SINK.store(sink, Ordering::Release);
        sink
    }

    fn current() -> Option<&'static Self> {
        // SAFETY: it is null or was leaked by `install`.
        unsafe { SINK.load(Ordering::Acquire).as_ref() }
    }

    /// Takes back a buffer that has been read.
    pub(super) fn give_back(&self, buffer: Buffer) {
        if let Ok(mut free) = self.free.lock()
            && let Some(free) = free.as_mut().filter(|free| free.len() < Self::KEPT)
        {
            free.push(buffer);
        }
    }

    /// Frees the buffers, and stops keeping any.
    pub(super) fn close(&self) {
        if let Ok(mut free) = self.free.lock() {
            *free = None;
        }
    }
}

/// Gives CUPTI a buffer. CUPTI calls this on a thread of the application, which must not wait.
pub(super) unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let kept = Sink::current().and_then(|sink| sink.free.try_lock().ok()?.as_mut()?.pop());
    let (bytes, length) = kept.unwrap_or_else(Buffer::new).into_raw();
    // SAFETY: CUPTI passes three pointers to write to.
    unsafe {
        *buffer = bytes;
        *size = length;
        *most = 0;
    }
}

/// Takes back a buffer that CUPTI has filled.
pub(super) unsafe extern "C" fn completed(
    _: *mut std::ffi::c_void,
    _: u32,
    buffer: *mut u8,
    size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    // SAFETY: `requested` gave the buffer to CUPTI, which is done with it.
    let buffer = unsafe { Buffer::from_raw(buffer, size) };
    if let Some(sink) = Sink::current() {
        // If nothing is read any more, the buffer is dropped.
        let _ = sink.filled.send(Message::Filled(buffer, valid));
    }
}

#[cfg(test)]
mod tests {
    use super::{Message, Sink, completed, requested};
    use std::{ptr, sync::mpsc};

    #[test]
    fn buffers_go_out_and_come_back() {
        let (filled, messages) = mpsc::channel();
        let sink = Sink::install(filled);
        for round in 0..40_u8 {
            let (mut buffer, mut size, mut most) = (ptr::null_mut(), 0, 7);
            // SAFETY: as CUPTI calls it.
            unsafe { requested(&mut buffer, &mut size, &mut most) };
            assert!(buffer.addr().is_multiple_of(8) && size >= 4096 && most == 0);
            // SAFETY: as CUPTI fills it.
            unsafe { buffer.write_bytes(round, size) };
            // SAFETY: as CUPTI gives it back.
            unsafe { completed(ptr::null_mut(), 0, buffer, size, 100) };
            let Ok(Message::Filled(buffer, valid)) = messages.recv() else { panic!("no buffer") };
            assert_eq!(buffer.bytes(valid), [round; 100]);
            assert_eq!(buffer.bytes(usize::MAX).len(), size);
            // Every third is not given back, so that new ones are made.
            if round % 3 > 0 {
                sink.give_back(buffer);
            }
        }
        // SAFETY: CUPTI is reported to do this when it is torn down.
        unsafe { completed(ptr::null_mut(), 0, ptr::null_mut(), 0, 0) };
        assert!(messages.try_recv().is_err());
    }
}
