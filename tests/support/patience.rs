//! A loop that waits for other threads and processes.

use std::time::{Duration, Instant};

/// The timeout of everything that a test waits for: longer than any machine takes, however busy.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Calls `look` again and again until it returns something. Fails after [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not after {PATIENCE:?}");
        // Leave the processor to the threads that are waited for.
        std::thread::sleep(Duration::from_millis(5));
    }
}
