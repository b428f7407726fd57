//! What is to be sent, and the thread that sends it. The buffer is bounded; whoever fills it never waits.

use super::{
    tally::{Cause, Tally},
    transport::{Refusal, Transport},
};
use crate::export::mute_this_thread;
use std::{
    collections::{VecDeque, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    io,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A request, and how many spans or points are in it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) body: Vec<u8>,
    pub(super) items: u64,
}

/// Takes requests, and has a thread send them, in order.
#[derive(Clone, Debug)]
pub(super) struct Outbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Somebody has put something in, or the run is over.
    put: Condvar,
    /// The thread is done.
    done: Condvar,
    tally: Arc<Tally>,
    /// The most bytes that wait.
    room: usize,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    /// Bytes of what waits, and of what is being sent.
    bytes: usize,
    /// Spans or points of what is being sent.
    in_flight: u64,
    /// When to give up, once the run is over.
    deadline: Option<Instant>,
    /// The thread has ended, or nobody waits for it any more.
    over: bool,
}

impl Outbox {
    /// Starts the thread. A request is given up after `timeout` each time that it is tried.
    pub(super) fn start(
        name: &str,
        mut transport: Transport,
        room: usize,
        timeout: Duration,
        tally: Arc<Tally>,
    ) -> io::Result<Self> {
        let shared = Shared { state: Mutex::default(), put: Condvar::new(), done: Condvar::new(), tally, room };
        let outbox = Self(Arc::new(shared));
        let sender = Sender { outbox: outbox.clone(), timeout, failing: false };
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            mute_this_thread();
            let outbox = sender.outbox.clone();
            // Of what others wrote, no more is known than that it should not panic.
            if panic::catch_unwind(AssertUnwindSafe(|| sender.run(&mut transport))).is_err() {
                outbox.0.tally.explain("the thread that sends has panicked".to_owned());
                let lost = outbox.lock().give_up();
                outbox.0.tally.lose(Cause::Unreachable, lost);
                outbox.0.done.notify_all();
            }
        })?;
        Ok(outbox)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a request sent. If there is no room for it, it is lost.
    pub(super) fn put(&self, request: Request) {
        let mut state = self.lock();
        if state.over || state.bytes + request.body.len() > self.0.room {
            let cause = if state.over { Cause::TooLate } else { Cause::NoRoom };
            self.0.tally.lose(cause, request.items);
            return;
        }
        state.bytes += request.body.len();
        state.waiting.push_back(request);
        self.0.put.notify_one();
    }

    /// The run is over: what is there has until `deadline` to be sent. Several may be told, and then be waited for.
    pub(super) fn close(&self, deadline: Instant) {
        self.lock().deadline = Some(deadline);
        self.0.put.notify_one();
    }

    /// Waits until everything has been sent, or the deadline has passed.
    pub(super) fn wait(&self) {
        let mut state = self.lock();
        while !state.over {
            let left =
                state.deadline.map_or(Duration::ZERO, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                // The thread may hang in a call for as long as the network lets it. It is not waited for.
                let lost = state.give_up();
                if lost > 0 {
                    self.0.tally.explain_at_least("the collector had not answered when the time was up");
                }
                self.0.tally.lose(Cause::TooLate, lost);
                return;
            }
            state = self.0.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Ends it; says how much is lost.
    fn give_up(&mut self) -> u64 {
        self.over = true;
        let waiting: u64 = self.waiting.drain(..).map(|request| request.items).sum();
        waiting + std::mem::take(&mut self.in_flight)
    }
}

/// The thread's end.
#[derive(Debug)]
struct Sender {
    outbox: Outbox,
    timeout: Duration,
    /// Whether the last request did not get through: it is told once.
    failing: bool,
}

impl Sender {
    /// How long one request is tried for.
    const TRY_FOR: Duration = Duration::from_secs(60);
    /// How long to wait before it is tried again; each time twice as long.
    const FIRST_PAUSE: Duration = Duration::from_millis(100);
    const LONGEST_PAUSE: Duration = Duration::from_secs(5);

    fn run(mut self, transport: &mut Transport) {
        while let Some(request) = self.next() {
            let outcome = self.deliver(transport, &request);
            let mut state = self.outbox.lock();
            if state.over {
                // It has been counted as lost; nobody looks any more.
                return;
            }
            state.bytes -= request.body.len();
            state.in_flight = 0;
            let tally = &self.outbox.0.tally;
            match outcome {
                Ok(rejected) => {
                    tally.send(request.items - rejected);
                    tally.lose(Cause::Rejected, rejected);
                }
                Err(cause) => tally.lose(cause, request.items),
            }
        }
        self.outbox.lock().over = true;
        self.outbox.0.done.notify_all();
    }

    /// What is to be sent next; none if the run is over and there is nothing left.
    fn next(&self) -> Option<Request> {
        let mut state = self.outbox.lock();
        loop {
            if state.over {
                return None;
            }
            if let Some(request) = state.waiting.pop_front() {
                state.in_flight = request.items;
                return Some(request);
            }
            if state.deadline.is_some() {
                return None;
            }
            state = self.outbox.0.put.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Tries until the collector has an answer. Says how much of it the collector has rejected, or why all of it is lost.
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
                        let why = format!("the collector took a part only: {}", accepted.message);
                        self.tell(&why);
                    } else {
                        self.failing = false;
                    }
                    return Ok(rejected);
                }
                Err(Refusal { again, after, why }) => {
                    self.tell(&why);
                    if !again {
                        return Err(Cause::Refused);
                    }
                    let wait = after.unwrap_or_else(|| somewhat_less(pause));
                    if began.elapsed().saturating_add(wait) > Self::TRY_FOR {
                        return Err(Cause::Unreachable);
                    }
                    self.rest(wait);
                    pause = (2 * pause).min(Self::LONGEST_PAUSE);
                }
            }
        }
    }

    /// As long as `most`, but not past the deadline.
    fn left(&self, most: Duration) -> Duration {
        let deadline = self.outbox.lock().deadline;
        deadline.map_or(most, |deadline| deadline.saturating_duration_since(Instant::now()).min(most))
    }

    /// Waits before the next try; less, if the run ends meanwhile: then there is no time to lose.
    fn rest(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.outbox.lock();
        let ending = state.deadline.is_some();
        loop {
            let until = state.deadline.map_or(until, |deadline| deadline.min(until));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.over || (!ending && state.deadline.is_some()) {
                return;
            }
            state = self.outbox.0.put.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn tell(&mut self, why: &str) {
        self.outbox.0.tally.explain(why.to_owned());
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(why, "kernspan: OpenTelemetry data does not get through");
        }
    }
}

/// The ranks of a run that lost their collector together are not to come back together.
fn somewhat_less(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() as u32;
    pause.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}
