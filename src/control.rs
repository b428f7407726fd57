//! Control of a run from other threads: its state, and windows on demand. With the feature `control`, from other
//! processes, too.

#[cfg(all(feature = "control", unix))]
mod client;
#[cfg(all(feature = "control", unix))]
mod live;
#[cfg(all(feature = "control", unix))]
pub mod protocol;
#[cfg(all(feature = "control", unix))]
mod requests;
#[cfg(all(feature = "control", unix))]
mod server;
#[cfg(all(feature = "control", unix))]
mod sockets;

#[cfg(all(feature = "control", unix))]
pub use self::{
    client::{Client, ClientError, Watching},
    server::Listen,
    sockets::{Listening, listening, listening_of},
};
#[cfg(all(feature = "control", unix))]
pub(crate) use self::{
    live::LiveRun,
    server::{Listener, ListenerParts, is_free},
};
pub use crate::{
    request::{Progress, RecordRequest, Recorded, Requested, StepCondition},
    session::Status,
};

use crate::{
    analysis::MemorySnapshot,
    error::Error,
    memory::RunMemory,
    request::{RequestLength, RequestStart, Ticket},
    schedule::Schedule,
    session::Session,
    thread::spawn,
    trace::Gpu,
};
use std::{path::PathBuf, sync::Arc};

/// A handle to look at a run and to ask for windows, from any thread: see
/// [`Profiler::control`](crate::Profiler::control).
///
/// It can be cloned, and does not keep the recording from ending.
///
/// ```
/// use kernspan::{Profiler, Schedule, control::RecordRequest};
/// # use tracing_subscriber::prelude::*;
///
/// let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).build()?;
/// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
/// let control = profiler.control();
/// let watcher = std::thread::spawn(move || control.record(RecordRequest::steps(2)).wait());
/// while !watcher.is_finished() {
///     tracing::info_span!("train_step").in_scope(|| ());
///     profiler.step();
/// }
/// assert_eq!(watcher.join().unwrap().unwrap().steps, 2);
/// # });
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Control {
    session: Arc<Session>,
    memory: RunMemory,
}

impl Control {
    pub(crate) fn new(session: Arc<Session>, memory: RunMemory) -> Self {
        Self { session, memory }
    }

    /// Returns the state of the run.
    pub fn status(&self) -> Status {
        self.session.status()
    }

    /// Whether GPU activity is recorded, and if not, why not.
    pub fn gpu(&self) -> Gpu {
        self.session.gpu()
    }

    /// Asks for a window. A request that cannot be met has [failed](Progress::Failed) when this returns.
    ///
    /// The window begins with a step, has only whole steps, and is apart from those of the schedule: an open one is
    /// closed before it, and another opened after it if the schedule wants one. Requests are met one after another.
    /// While the program keeps a window open by hand, they wait.
    ///
    /// A request for a duration in a program without steps opens its window now.
    pub fn record(&self, request: RecordRequest) -> Requested {
        match (request.length, request.start) {
            (RequestLength::Recent, RequestStart::NextStep) => self.write_recent(request.folder),
            (RequestLength::Duration(duration), RequestStart::NextStep) if !self.session.status().has_steps => {
                if let Err(problem) = request.check() {
                    return Requested::refused(problem);
                }
                let requested = self.open(request.folder);
                let session = Arc::clone(&self.session);
                let watched = requested.clone();
                let closing = move || {
                    // The window may be closed by someone else before.
                    watched.wait_for_change(&Progress::Recording, duration);
                    if watched.progress() == Progress::Recording {
                        session.close();
                    }
                };
                if !requested.progress().is_over() && spawn("kernspan-request", closing).is_err() {
                    self.session.close();
                }
                requested
            }
            _ => self.session.request(request),
        }
    }

    /// Opens a window by hand, which is written into a folder of its own if one is given.
    pub(crate) fn open(&self, folder: Option<PathBuf>) -> Requested {
        let (ticket, requested) = Ticket::new(folder);
        match self.session.open(Some(ticket)) {
            Ok(()) => requested,
            Err(problem) => Requested::refused(problem),
        }
    }

    /// Writes what the [flight recorder](crate::FlightRecorder) has kept into a folder, or else passes it to the
    /// exporters: see [`Profiler::write_recent`](crate::Profiler::write_recent).
    pub fn write_recent(&self, folder: Option<PathBuf>) -> Requested {
        let (ticket, requested) = Ticket::new(folder);
        self.session.write_recent(ticket);
        requested
    }

    /// Closes the window that is open. Returns false if none is.
    pub fn stop(&self) -> bool {
        self.session.close()
    }

    /// Follows another schedule. Cycles count from the next step on; [`Schedule::steps`] has the numbers of the run.
    ///
    /// # Errors
    ///
    /// [`Error::Schedule`] if it is invalid.
    pub fn set_schedule(&self, schedule: Schedule) -> Result<(), Error> {
        schedule.check().map_err(Error::Schedule)?;
        self.session.set_schedule(schedule);
        Ok(())
    }

    /// Returns who holds the memory of GPUs now: see [`Profiler::memory_snapshot`](crate::Profiler::memory_snapshot).
    ///
    /// # Errors
    ///
    /// [`Error::MemorySnapshot`] if allocations are not followed, or GPUs are not recorded.
    pub fn memory_snapshot(&self) -> Result<MemorySnapshot, Error> {
        self.memory.snapshot(&self.gpu()).map_err(|problem| Error::MemorySnapshot { problem })
    }
}
