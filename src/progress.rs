//! A progress line on the terminal for exports that take a while.

use crate::thread::{join_unless_stuck, spawn};
use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// A progress line on the terminal that appears when exports take more than a second. It is removed on drop.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Ends the thread when it is dropped.
    ending: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// The time between two lines, and before the first.
    const EVERY: Duration = Duration::from_secs(1);
    /// Returns to the start of the line and removes it.
    const CLEAR: &'static str = "\r\x1b[K";

    /// Starts the line on standard error, if it is a terminal.
    pub(crate) fn start() -> Option<Self> {
        let stderr = io::stderr();
        stderr.is_terminal().then(|| Self::write_to(stderr, Self::EVERY)).flatten()
    }

    /// Starts the line. Returns `None` if no thread can be spawned.
    fn write_to(terminal: impl Write + Send + 'static, every: Duration) -> Option<Self> {
        let (ending, ended) = mpsc::channel();
        let thread = spawn("kernspan-progress", move || run(terminal, every, &ended)).ok()?;
        Some(Self { ending: Some(ending), thread: Some(thread) })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.ending = None;
        // If it panicked, or nobody reads the terminal, only the line is lost.
        let _ = self.thread.take().map(|thread| join_unless_stuck(thread, Self::EVERY, || 0));
    }
}

/// Updates the line until the other end of the channel is dropped. Write errors are ignored.
fn run(mut terminal: impl Write, every: Duration, ended: &Receiver<()>) {
    let start = Instant::now();
    let mut is_shown = false;
    while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let _ = write!(terminal, "{}kernspan: exporting, {} s", Progress::CLEAR, start.elapsed().as_secs());
        let _ = terminal.flush();
        is_shown = true;
    }
    if is_shown {
        let _ = write!(terminal, "{}", Progress::CLEAR);
        let _ = terminal.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex, PoisonError},
        time::Duration,
    };

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
        }
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_shown_after_a_while_and_removed_at_the_end() {
        let screen = Screen::default();
        let progress = Progress::write_to(screen.clone(), Duration::from_millis(1)).unwrap();
        while screen.text().is_empty() {
            std::thread::yield_now();
        }
        drop(progress);
        let text = screen.text();
        assert!(text.starts_with("\r\x1b[Kkernspan: exporting, ") && text.ends_with(" s\r\x1b[K"), "{text:?}");
    }

    #[test]
    fn nothing_is_shown_if_it_is_quick() {
        let screen = Screen::default();
        drop(Progress::write_to(screen.clone(), Duration::from_secs(3600)));
        assert_eq!(screen.text(), "");
    }
}
