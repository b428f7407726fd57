//! Bounded queues of requests, one for each signal, and the threads that send them.

use crate::{
    answer::Refusal,
    endpoint::{Endpoint, Signal},
    request::Request,
    span_writer::RequestLimits,
    tally::{Cause, Tally},
    transport::Transport,
};
use kernspan::export::mute_this_thread;
use std::{
    collections::{VecDeque, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    io,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A bounded queue of requests that a thread sends in order. Adding a request never blocks.
#[derive(Clone, Debug)]
struct SendQueue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a request was added, or the run is over.
    added: Condvar,
    /// Notified when the thread has ended.
    done: Condvar,
    tally: Arc<Tally>,
    /// The maximum number of queued bytes.
    capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    /// Bytes of the queued requests and of the one being sent.
    bytes: usize,
    /// Spans or points of the request being sent.
    in_flight: u64,
    /// When to give up, once the run is over.
    deadline: Option<Instant>,
    /// Whether the thread has ended, or is no longer waited for.
    closed: bool,
}

impl SendQueue {
    /// Starts the thread. Each attempt to send a request may take as long as `timeout`.
    pub(crate) fn start(
        name: &str,
        mut transport: Transport,
        capacity: usize,
        timeout: Duration,
        tally: Arc<Tally>,
    ) -> io::Result<Self> {
        let (added, done) = (Condvar::new(), Condvar::new());
        let queue = Self(Arc::new(Shared { state: Mutex::default(), added, done, tally, capacity }));
        let sender = Sender { queue: queue.clone(), timeout, failing: false, dead_at_end: 0 };
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            mute_this_thread();
            let queue = sender.queue.clone();
            // The HTTP and gRPC clients are not ours. If one panics, the requests are still counted as lost.
            if panic::catch_unwind(AssertUnwindSafe(|| sender.run(&mut transport))).is_err() {
                queue.0.tally.explain("the thread that sends requests panicked".to_owned());
                let lost = queue.lock().close();
                queue.0.tally.lose(Cause::Unreachable, lost);
                queue.0.done.notify_all();
            }
        })?;
        Ok(queue)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. If it does not fit, it is lost.
    pub(crate) fn add(&self, request: Request) {
        let mut state = self.lock();
        if state.closed || state.bytes + request.body.len() > self.0.capacity {
            let cause = if state.closed { Cause::TooLate } else { Cause::NoRoom };
            self.0.tally.lose(cause, request.items);
            return;
        }
        state.bytes += request.body.len();
        state.waiting.push_back(request);
        self.0.added.notify_one();
    }

    /// Ends the run: queued requests are sent until `deadline`. This does not block; [`wait`](Self::wait) does.
    pub(crate) fn finish_by(&self, deadline: Instant) {
        self.lock().deadline = Some(deadline);
        self.0.added.notify_one();
    }

    /// Waits until all requests have been sent, or the deadline has passed.
    pub(crate) fn wait(&self) {
        let mut state = self.lock();
        while !state.closed {
            let left =
                state.deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                // The network may block the thread for long, so it is not joined.
                let lost = state.close();
                if lost > 0 {
                    self.0.tally.explain_if_unknown("the collector did not answer before the time to finish ran out");
                }
                self.0.tally.lose(Cause::TooLate, lost);
                return;
            }
            state = self.0.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Drops all requests. Returns how many spans or points are lost.
    fn close(&mut self) -> u64 {
        self.closed = true;
        let waiting: u64 = self.waiting.drain(..).map(|request| request.items).sum();
        waiting + std::mem::take(&mut self.in_flight)
    }
}

/// The thread that sends the requests of a queue.
#[derive(Debug)]
struct Sender {
    queue: SendQueue,
    timeout: Duration,
    /// Whether the last request failed. Only the first failure in a row is logged.
    failing: bool,
    /// How many times nothing was listening since the run ended.
    dead_at_end: u32,
}

impl Sender {
    /// How long a request is retried.
    const TRY_FOR: Duration = Duration::from_secs(60);
    /// The pause before the second attempt. Each pause is twice as long as the previous one.
    const FIRST_PAUSE: Duration = Duration::from_millis(100);
    const LONGEST_PAUSE: Duration = Duration::from_secs(5);
    /// How often to try a collector that is not listening after the run has ended, over all requests. The pauses add up
    /// to a fraction of a second, and the program need not wait any longer.
    const TRIES_AT_END: u32 = 4;

    fn run(mut self, transport: &mut Transport) {
        while let Some(request) = self.next() {
            let outcome = self.deliver(transport, &request);
            let mut state = self.queue.lock();
            if state.closed {
                // The request has been counted as lost.
                return;
            }
            state.bytes -= request.body.len();
            state.in_flight = 0;
            let tally = &self.queue.0.tally;
            match outcome {
                Ok(rejected) => {
                    tally.send(request.items - rejected);
                    tally.lose(Cause::Rejected, rejected);
                }
                Err(cause) => tally.lose(cause, request.items),
            }
        }
        self.queue.lock().closed = true;
        self.queue.0.done.notify_all();
    }

    /// Waits for the next request. `None` if the run is over and all have been sent.
    fn next(&self) -> Option<Request> {
        let mut state = self.queue.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(request) = state.waiting.pop_front() {
                state.in_flight = request.items;
                return Some(request);
            }
            if state.deadline.is_some() {
                return None;
            }
            state = self.queue.0.added.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends a request, with retries. Returns how many of its items the collector rejected, or why all are lost.
    fn deliver(&mut self, transport: &mut Transport, request: &Request) -> Result<u64, Cause> {
        let began = Instant::now();
        let mut pause = Self::FIRST_PAUSE;
        loop {
            let left = self.left(self.timeout);
            if left.is_zero() {
                return Err(Cause::TooLate);
            }
            match transport.send(&request.body, left) {
                Ok(accepted) => {
                    let rejected = accepted.rejected.min(request.items);
                    if rejected > 0 {
                        let separator = if accepted.message.is_empty() { "" } else { ": " };
                        let message = accepted.message;
                        self.log(&format!(
                            "the collector rejected {rejected} of {} items{separator}{message}",
                            request.items
                        ));
                    } else {
                        self.failing = false;
                    }
                    return Ok(rejected);
                }
                Err(Refusal { retry, dead, after, why }) => {
                    self.log(&why);
                    if !retry {
                        return Err(Cause::Refused);
                    }
                    if dead && self.queue.lock().deadline.is_some() {
                        self.dead_at_end += 1;
                        if self.dead_at_end >= Self::TRIES_AT_END {
                            return Err(Cause::Unreachable);
                        }
                        pause = Self::FIRST_PAUSE;
                    }
                    let wait = after.unwrap_or_else(|| with_jitter(pause));
                    if began.elapsed().saturating_add(wait) > Self::TRY_FOR {
                        return Err(Cause::Unreachable);
                    }
                    self.pause(wait);
                    pause = (2 * pause).min(Self::LONGEST_PAUSE);
                }
            }
        }
    }

    /// The time until the deadline, but at most `most`.
    fn left(&self, most: Duration) -> Duration {
        let deadline = self.queue.lock().deadline;
        deadline.map_or(most, |deadline| deadline.saturating_duration_since(Instant::now()).min(most))
    }

    /// Waits before the next attempt. The end of the run cuts the pause short, since there is little time left then.
    fn pause(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.queue.lock();
        let ending = state.deadline.is_some();
        loop {
            let until = state.deadline.map_or(until, |deadline| deadline.min(until));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.closed || (!ending && state.deadline.is_some()) {
                return;
            }
            state = self.queue.0.added.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn log(&mut self, why: &str) {
        self.queue.0.tally.explain(why.to_owned());
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(why, "kernspan: cannot send OpenTelemetry data");
        }
    }
}

/// A random time between half the pause and all of it, so that the ranks of a run do not all retry at once.
fn with_jitter(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() as u32;
    pause.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}

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
