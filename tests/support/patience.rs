//! Waiting for what other threads and processes do.

use std::time::{Duration, Instant};

/// How long a test waits for something before it says that it never comes: longer than any machine takes, however busy.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Looks for something again and again until it is there.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not after {PATIENCE:?}");
        // The processor is for whoever is waited for.
        std::thread::sleep(Duration::from_millis(5));
    }
}
