//! The progress bar shown while files are read.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::Duration,
};

/// A progress bar on standard error, if that is a terminal. It appears when reading takes longer than
/// [`Progress::DELAY`], and disappears on drop.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Dropped to tell the thread waiting for the delay that the bar is not needed.
    _ended: Sender<()>,
}

impl Progress {
    const DELAY: Duration = Duration::from_millis(500);
    const TICK: Duration = Duration::from_millis(100);
    const TEMPLATE: &str = "{spinner} {bar:24} {bytes} of {total_bytes}, {elapsed}: {wide_msg}";

    /// Creates a progress bar that expects nothing yet.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(Self::TEMPLATE) {
            bar.set_style(style);
        }
        let (ended, waits) = mpsc::channel::<()>();
        let shown = bar.clone();
        thread::spawn(move || {
            if waits.recv_timeout(Self::DELAY) == Err(RecvTimeoutError::Timeout) && !shown.is_finished() {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(Self::TICK);
            }
        });
        Self { bar, _ended: ended }
    }

    /// Adds to the number of bytes to read.
    pub(crate) fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Sets the file being read.
    pub(crate) fn file(&self, name: &str) {
        self.bar.set_message(name.to_owned());
    }

    /// Adds to the number of bytes read.
    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Prints a line to standard error, above the bar.
    pub(crate) fn say(&self, message: &str) {
        self.bar.suspend(|| crate::fault::say(message));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
