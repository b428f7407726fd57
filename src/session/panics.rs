//! Writes what flight recorders have kept when a thread panics.

use super::{Session, Stepping};
use crate::{
    request::{Progress, Ticket},
    thread::{is_muted, spawn},
};
use std::{
    panic,
    sync::{Arc, Mutex, Once, PoisonError, Weak},
    time::{Duration, Instant},
};

/// The sessions that have a flight recorder, and when each last wrote after a panic.
static SESSIONS: Mutex<Vec<(Weak<Session>, Option<Instant>)>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// A program may catch panics and have many.
const PAUSE: Duration = Duration::from_secs(10);
/// How long a program that aborts on panics waits until the windows are written.
const WITHIN: Duration = Duration::from_secs(10);

/// Has a session write what it kept when a thread panics. The hook that the program has is called first, and stays.
pub(crate) fn write_on_panic(session: &Arc<Session>) {
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.retain(|(session, _)| session.strong_count() > 0);
    sessions.push((Arc::downgrade(session), None));
    drop(sessions);
    // A hook can be neither taken nor set by a thread that panics.
    if !std::thread::panicking() {
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                before(info);
                write_all();
            }));
        });
    }
}

/// Has other threads do it: a second panic in this one would abort the program.
fn write_all() {
    // A panic of the profiler's own, or of a function that it calls.
    if is_muted() || Stepping::is_on() {
        return;
    }
    for session in due() {
        let (ticket, requested) = Ticket::new(None);
        let writing = spawn("kernspan-panic", move || session.write_recent(ticket));
        if writing.is_ok() && cfg!(panic = "abort") {
            let until = Instant::now() + WITHIN;
            let mut progress = Progress::Waiting;
            while !progress.is_over() && Instant::now() < until {
                progress = requested.wait_for_change(&progress, until.saturating_duration_since(Instant::now()));
            }
        }
    }
}

/// Returns the sessions that have not written for a while.
fn due() -> Vec<Arc<Session>> {
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = |(session, written): &mut (Weak<Session>, Option<Instant>)| {
        let session = session.upgrade().filter(|_| written.is_none_or(|written| written.elapsed() >= PAUSE))?;
        *written = Some(Instant::now());
        Some(session)
    };
    sessions.iter_mut().filter_map(is_due).collect()
}
