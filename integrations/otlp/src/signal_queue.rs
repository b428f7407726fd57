use crate::{
    endpoint::Endpoint, request::Request, send_queue::SendQueue, signal::Signal, span_writer::RequestLimits,
    tally::Tally, transport::Transport,
};
use std::{sync::Arc, time::Instant};

/// The queue of one signal, with the counts of what became of its requests.
#[derive(Debug)]
pub(crate) struct SignalQueue {
    queue: SendQueue,
    pub(crate) tally: Arc<Tally>,
    pub(crate) limits: RequestLimits,
}

impl SignalQueue {
    /// Starts the sending thread. At most `buffer` bytes may be queued.
    pub(crate) fn start(signal: Signal, endpoint: &Endpoint, buffer: usize) -> Result<Self, String> {
        let name = match signal {
            Signal::Traces => "kernspan-traces",
            Signal::Metrics => "kernspan-metrics",
        };
        let transport = Transport::new(signal, endpoint)?;
        let tally = Arc::new(Tally::default());
        let queue = SendQueue::start(name, transport, buffer, endpoint.timeout, Arc::clone(&tally));
        let queue = queue.map_err(|error| format!("cannot start the thread {name}: {error}"))?;
        Ok(Self { queue, tally, limits: RequestLimits::of(endpoint.protocol) })
    }

    /// Adds a request. If it does not fit, it is lost.
    pub(crate) fn add(&self, request: Request) {
        self.queue.add(request);
    }

    /// Ends the run: queued requests are sent until `deadline`. This does not block; [`wait`](Self::wait) does.
    pub(crate) fn finish_by(&self, deadline: Instant) {
        self.queue.finish_by(deadline);
    }

    /// Waits until all requests have been sent, or the deadline has passed.
    pub(crate) fn wait(&self) {
        self.queue.wait();
    }
}
