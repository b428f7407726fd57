//! Failures of exporters and user functions, which do not end the run.

use std::{any::Any, error::Error, fmt, sync::Arc};

/// A failure that did not end the run: an exporter failed with a window, or a schedule's function failed.
#[derive(Clone, Debug)]
pub struct Failure {
    origin: String,
    window: Option<u32>,
    error: Arc<dyn Error + Send + Sync>,
}

impl Failure {
    pub(crate) fn new(origin: &str, window: Option<u32>, error: Box<dyn Error + Send + Sync>) -> Self {
        Self { origin: origin.to_owned(), window, error: error.into() }
    }

    pub(crate) fn of_panic(origin: &str, window: Option<u32>, message: &str) -> Self {
        Self::new(origin, window, format!("panicked: {message}").into())
    }

    /// The name of the exporter that failed, or `on_trace` or `schedule`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The window it failed with, if any.
    pub fn window(&self) -> Option<u32> {
        self.window
    }

    /// The error.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }
}

/// The failures of a run: the first few of each origin, and the number of the rest.
///
/// An exporter that cannot write fails with every window, perhaps for days.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    first: Vec<Failure>,
    others: Vec<Others>,
}

/// The failures of an origin beyond its first ones.
#[derive(Debug)]
struct Others {
    number: u64,
    last: Failure,
}

impl Failures {
    /// The number of failures kept per origin, in addition to the last one.
    pub(crate) const OF_EACH: usize = 8;

    pub(crate) fn add(&mut self, failure: Failure) {
        let kept = self.first.iter().filter(|kept| kept.origin == failure.origin).count();
        if kept < Self::OF_EACH {
            self.first.push(failure);
        } else if let Some(others) = self.others.iter_mut().find(|others| others.last.origin == failure.origin) {
            *others = Others { number: others.number + 1, last: failure };
        } else {
            self.others.push(Others { number: 1, last: failure });
        }
    }

    /// The total number of failures.
    pub(crate) fn count(&self) -> u64 {
        self.first.len() as u64 + self.others.iter().map(|others| others.number).sum::<u64>()
    }

    /// Adds a failure, unless an identical one is already kept.
    pub(crate) fn add_new(&mut self, failure: Failure) {
        let text = failure.to_string();
        if !self.first.iter().any(|kept| kept.to_string() == text) {
            self.add(failure);
        }
    }

    /// Adds the failures of another part of the run.
    pub(crate) fn append(&mut self, failures: Self) {
        failures.into_vec().into_iter().for_each(|failure| self.add(failure));
    }

    /// Returns the first failures in the order they happened. For each origin with more, one additional failure counts
    /// them and names the last.
    pub(crate) fn into_vec(self) -> Vec<Failure> {
        let others = self.others.into_iter().map(|Others { number, last }| match number {
            1 => last,
            _ => {
                let error = format!("failed {number} more times; the last time: {}", Chain(&*last.error));
                Failure { error: Arc::from(Box::from(error)), ..last }
            }
        });
        self.first.into_iter().chain(others).collect()
    }
}

impl FromIterator<Failure> for Failures {
    fn from_iter<I: IntoIterator<Item = Failure>>(failures: I) -> Self {
        let mut all = Self::default();
        failures.into_iter().for_each(|failure| all.add(failure));
        all
    }
}

/// An error with the chain of its causes, for printing.
struct Chain<'a>(&'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, self.0)
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "with no message".to_owned())
}

impl fmt::Display for Failure {
    /// The origin, the window, and the whole chain of causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some(window) = self.window {
            write!(f, ", window {window}")?;
        }
        f.write_str(": ")?;
        write_chain(f, &*self.error)
    }
}

/// Failures grouped for printing: those with the same error, such as a full disk, share a line that lists all their
/// origins and windows.
pub(crate) struct Grouped<'a>(pub(crate) &'a [Failure]);

impl Grouped<'_> {
    /// Returns a line for each error.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut groups: Vec<(String, Vec<&Failure>)> = Vec::new();
        for failure in self.0 {
            let error = Chain(&*failure.error).to_string();
            match groups.iter_mut().find(|(text, _)| *text == error) {
                Some((_, group)) => group.push(failure),
                None => groups.push((error, vec![failure])),
            }
        }
        let line = |(error, group): (String, Vec<&Failure>)| {
            let mut origins: Vec<_> = group.iter().map(|failure| failure.origin.as_str()).collect();
            origins.sort_unstable();
            origins.dedup();
            let mut windows: Vec<_> = group.iter().filter_map(|failure| failure.window).collect();
            windows.sort_unstable();
            windows.dedup();
            let windows: Vec<_> = windows.iter().map(ToString::to_string).collect();
            let windows = match windows.len() {
                0 => String::new(),
                1 => format!(", window {}", windows[0]),
                _ => format!(", windows {}", windows.join(", ")),
            };
            format!("{}{windows}: {error}", origins.join(", "))
        };
        groups.into_iter().map(line).collect()
    }
}

impl fmt::Display for Grouped<'_> {
    /// Writes each line after a semicolon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| write!(f, "; {line}"))
    }
}

/// Writes an error and the chain of its causes.
pub(crate) fn write_chain(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    write!(f, "{error}")?;
    std::iter::successors(error.source(), |cause| (*cause).source()).try_for_each(|cause| write!(f, ": {cause}"))
}

#[cfg(test)]
mod tests {
    use super::{Failure, Failures, Grouped};

    fn failures(windows: u32, origins: &[&str]) -> Vec<String> {
        let failure = |origin: &str, window| Failure::new(origin, Some(window), format!("no room {window}").into());
        let all = (0..windows).flat_map(|window| origins.iter().map(move |origin| failure(origin, window)));
        all.collect::<Failures>().into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_first_of_each_origin_are_kept_and_others_counted() {
        let kept = failures(1_000_000, &["Chrome", "Stacks"]);
        assert_eq!(kept.len(), 2 * Failures::OF_EACH + 2);
        assert_eq!(
            kept[..3],
            ["Chrome, window 0: no room 0", "Stacks, window 0: no room 0", "Chrome, window 1: no room 1"]
        );
        let more = "window 999999: failed 999992 more times; the last time: no room 999999";
        assert_eq!(kept[16..], [format!("Chrome, {more}"), format!("Stacks, {more}")]);
    }

    #[test]
    fn a_single_other_is_kept_as_it_is() {
        let windows = Failures::OF_EACH as u32 + 1;
        assert_eq!(failures(windows, &["Chrome"]).last().unwrap(), "Chrome, window 8: no room 8");
    }

    #[test]
    fn failures_with_the_same_error_are_written_together() {
        let failure = |origin: &str, window, error: &str| Failure::new(origin, window, error.into());
        let all = [
            failure("Perfetto", Some(0), "disk full"),
            failure("Chrome", Some(0), "disk full"),
            failure("Chrome", Some(1), "disk full"),
            failure("schedule", None, "panicked"),
        ];
        assert_eq!(Grouped(&all).to_string(), "; Chrome, Perfetto, windows 0, 1: disk full; schedule: panicked");
    }

    #[test]
    fn failures_that_read_the_same_are_kept_once() {
        let mut failures = Failures::default();
        for text in ["full", "gone", "full"] {
            failures.add_new(Failure::new("TensorBoard", None, text.into()));
        }
        assert_eq!(failures.into_vec().len(), 2);
    }
}
