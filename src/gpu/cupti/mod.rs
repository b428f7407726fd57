//! NVIDIA GPUs, through CUPTI.
//!
//! Three things run alongside the program: [`calls`] on the threads that call the driver, the [`sink`] of full buffers
//! on whichever threads CUPTI returns them on, and the [`reader`], our own thread. The [`source`] decides when CUPTI is
//! attached, on, off and detached; [`switch`] does it, and documents which thread may call what.

#![allow(unsafe_code, reason = "CUPTI is a C library")]

mod buffer;
mod calls;
mod claim;
mod closed;
mod counters;
pub(crate) mod decode;
mod device;
mod followed;
mod gate;
mod library;
mod message;
pub(crate) mod names;
mod reader;
mod sink;
mod source;
mod switch;

use self::{
    claim::Claim, counters::CounterThread, library::Library, message::Message, reader::Reader, sink::Sink,
    source::Source,
};
use super::{GpuSettings, Started};
use crate::{budget::Budget, host::Host, recording::HandOn, thread, trace::GpuProblem};
use std::{
    io,
    sync::{
        Arc,
        atomic::AtomicU64,
        mpsc::{self, Sender},
    },
};

/// Starts the thread that reads CUPTI's buffers, if CUPTI can be used.
pub(super) fn start(
    settings: GpuSettings,
    host: &Arc<Host>,
    budget: &Arc<Budget>,
    hand_on: HandOn,
) -> io::Result<Result<Started, GpuProblem>> {
    let library = match Library::of_this_process() {
        Ok(library) => library,
        Err(problem) => return Ok(Err(problem.clone())),
    };
    let Some(claim) = Claim::take() else { return Ok(Err(GpuProblem::AnotherKernspan)) };
    let (messages, inbox) = mpsc::channel();
    let sink = Sink::install(messages.clone());
    let counters =
        settings.counters.clone().map(|counters| CounterThread::start(library, counters, Arc::clone(budget)));
    let source = Arc::new(Source::new(library, settings, counters.transpose()?, host, messages.clone()));
    source.follow();
    let progress = Arc::<AtomicU64>::default();
    let reader =
        Reader::new(Arc::clone(&source), sink, inbox, hand_on, Arc::clone(budget), claim, Arc::clone(&progress));
    let thread = thread::spawn("kernspan-gpu", move || reader.run())?;
    Ok(Ok(Started { source, thread, progress, collected: CollectedSender(messages).into_hand_on() }))
}

/// The sender of collected windows to the reader, which finishes when the sender is dropped.
struct CollectedSender(Sender<Message>);

impl CollectedSender {
    fn into_hand_on(self) -> HandOn {
        Box::new(move |recording| {
            // The other end is gone only if its thread panicked, which is reported when it is joined.
            let _ = self.0.send(Message::Collected(Box::new(recording)));
        })
    }
}

impl Drop for CollectedSender {
    fn drop(&mut self) {
        let _ = self.0.send(Message::Finish);
    }
}
