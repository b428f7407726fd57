//! The background thread that adds up requests, raises alerts and writes the log.

use super::{RequestLog, RequestRecorder, Requests, request_log::RequestLogWriter};
use crate::{
    failure::{Failure, Failures, panic_message},
    request::{Progress, RecordRequest, Requested, Ticket},
    thread::spawn,
    trace::Metadata,
};
use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::Duration,
};

/// The background thread that adds up requests, raises alerts and writes the log.
#[derive(Debug)]
pub(crate) struct ServingThread {
    thread: JoinHandle<Served>,
    /// Ends the thread when it is dropped.
    ending: Sender<()>,
}

/// The parts that the thread is started with.
pub(crate) struct ServingParts {
    pub(crate) recorder: Arc<RequestRecorder>,
    pub(crate) log: Option<(RequestLog, Metadata)>,
    /// Asks for a window.
    pub(crate) record: Box<Record>,
}

/// A function that asks for a window.
type Record = dyn Fn(RecordRequest) -> Requested + Send;

/// The results of the thread.
#[derive(Debug, Default)]
pub(crate) struct Served {
    requests: Requests,
    /// `None` if the thread panicked.
    recorder: Option<Arc<RequestRecorder>>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) failures: Failures,
}

impl ServingThread {
    /// The time between two readings. One takes some microseconds, and a shard has room for this long.
    const EVERY: Duration = Duration::from_millis(50);

    pub(crate) fn start(parts: ServingParts) -> io::Result<Self> {
        let (ending, receiver) = mpsc::channel();
        let run = move || {
            let ServingParts { recorder, log, record } = parts;
            let mut log = log.map(|(log, metadata)| RequestLogWriter::new(log, metadata));
            let mut served = Served::default();
            loop {
                let over = receiver.recv_timeout(Self::EVERY) != Err(RecvTimeoutError::Timeout);
                recorder.collect();
                // Once the run has ended, there is no window to ask for.
                let record = (!over).then_some(&*record);
                served.raise_alerts(&recorder, record);
                for (kind, folder) in recorder.take_slow() {
                    if served.ask(record, RecordRequest::recent().into_dir(folder), "a slow request") {
                        recorder.wrote_slow(kind);
                    }
                }
                for log in log.iter_mut().filter(|log| over || log.is_due(recorder.elapsed())) {
                    if let Err(error) = log.write(recorder.requests()) {
                        served.failures.add_new(Failure::new("request_log", None, error.into()));
                    }
                }
                if over {
                    served.files.extend(log.iter().map(RequestLogWriter::path).filter(|path| path.exists()));
                    served.requests = recorder.requests();
                    return Served { recorder: Some(recorder), ..served };
                }
            }
        };
        Ok(Self { thread: spawn("kernspan-serving", run)?, ending })
    }

    /// Ends the thread, and returns its results.
    pub(crate) fn join(self) -> Served {
        drop(self.ending);
        self.thread.join().unwrap_or_else(|panic| Served {
            failures: [Failure::of_panic("kernspan", None, &panic_message(&*panic))].into_iter().collect(),
            ..Served::default()
        })
    }
}

impl Served {
    /// Returns the requests until the recording ended, with what the windows say that have been exported by now.
    pub(crate) fn requests(&mut self) -> Requests {
        let mut requests = std::mem::take(&mut self.requests);
        self.recorder.iter().for_each(|recorder| recorder.complete(&mut requests));
        requests
    }

    /// Calls the hooks of objectives for which an alert begins, and asks for their windows.
    fn raise_alerts(&mut self, recorder: &RequestRecorder, record: Option<&Record>) {
        for (slo, level) in recorder.new_alerts() {
            tracing::warn!("kernspan: {level}");
            for hook in &slo.hooks {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hook(&level))) {
                    self.failures.add_new(Failure::of_panic("on_alert", None, &panic_message(&*panic)));
                }
            }
            if let Some(request) = slo.recording {
                let _ = self.ask(record, request, &level.objective);
            }
        }
    }

    /// Asks for a window. Returns whether there will be one.
    fn ask(&mut self, record: Option<&Record>, request: RecordRequest, because: &str) -> bool {
        let Some(record) = record else { return false };
        // A request that cannot be met has failed at once.
        let Progress::Failed(reason) = record(request).progress() else { return true };
        if reason == Ticket::OTHER_WINDOW {
            // The open window has what was slow, unless it was opened later.
            tracing::info!("kernspan: no separate window was written for {because}: another one is open");
        } else {
            let error = format!("no window for {because}: {reason}");
            self.failures.add_new(Failure::new("request_on", None, error.into()));
        }
        false
    }
}

impl fmt::Debug for ServingParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingParts").field("log", &self.log).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Served;
    use crate::request::{RecordRequest, Requested, Ticket};

    /// Asks for a window that is refused for this reason, or not. Returns whether there will be one, and the failures.
    fn asked(refused: Option<&'static str>) -> (bool, u64) {
        let record = move |_: RecordRequest| -> Requested {
            let (ticket, requested) = Ticket::new(None);
            // One that nobody answers any more has failed, too.
            match refused {
                Some(reason) => ticket.fail(reason),
                None => std::mem::forget(ticket),
            }
            requested
        };
        let mut served = Served::default();
        let is_granted = served.ask(Some(&record), RecordRequest::recent(), "a slow request");
        (is_granted, served.failures.count())
    }

    #[test]
    fn another_window_is_no_failure() {
        assert_eq!(asked(None), (true, 0));
        assert_eq!(asked(Some(Ticket::OTHER_WINDOW)), (false, 0));
        assert_eq!(asked(Some("there is no flight recorder")), (false, 1));
    }
}
