//! Why the system refuses to sample, in words.

use std::{fs, io};

/// Threads that were not sampled, or not in full, and why.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The reason why nothing is sampled.
    pub(super) all: Option<String>,
    /// The number of threads that were not sampled, and the last error.
    pub(super) threads: Option<(u32, String)>,
    /// The reason why waits have no stacks.
    pub(super) waits: Option<String>,
}

impl Refusals {
    /// Returns all of it in words, if there is anything.
    pub(super) fn problem(&self) -> Option<String> {
        let threads = self.threads.as_ref().map(|(count, why)| match count {
            1 => format!("1 thread was not sampled: {why}"),
            _ => format!("{count} threads were not sampled: {why}"),
        });
        let waits = self.waits.as_ref().map(|why| format!("waits have no stacks: {why}"));
        let problems: Vec<_> = [self.all.clone(), threads, waits].into_iter().flatten().collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }
}

/// Whether an error says that the thread has ended.
pub(super) fn has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Whether an error concerns one thread more, rather than all.
pub(super) fn is_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOSPC))
}

/// Explains why an event that needs no privilege cannot be opened, and what to change.
pub(super) fn explain(error: &io::Error) -> String {
    explain_on(error, paranoid(), is_filtered())
}

/// The same on a system with this `kernel.perf_event_paranoid`, for a thread with a seccomp filter or without.
fn explain_on(error: &io::Error, paranoid: Option<i32>, is_filtered: bool) -> String {
    match (error.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(paranoid @ 3..)) => format!(
            "stacks are not sampled, as `kernel.perf_event_paranoid` is {paranoid}: run `sysctl \
             kernel.perf_event_paranoid=2`, or give the program CAP_PERFMON"
        ),
        (Some(libc::EACCES | libc::EPERM), _) if is_filtered => {
            "stacks are not sampled, as a seccomp filter refuses `perf_event_open`: start the container with \
             `--cap-add PERFMON`, or with a seccomp profile that allows it"
                .to_owned()
        }
        (Some(libc::EACCES | libc::EPERM), _) => {
            format!("stacks are not sampled, as `perf_event_open` is refused ({error}): {PRIVILEGE}")
        }
        (Some(libc::ENOSYS), _) => "stacks are not sampled, as this kernel, or the sandbox it runs in, has no \
                                    `perf_event_open`"
            .to_owned(),
        _ => format!("stacks are not sampled, as `perf_event_open` fails: {error}"),
    }
}

/// Explains why a thread cannot be sampled in addition to others.
pub(super) fn explain_limit(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => FILES.to_owned(),
        Some(libc::ENOMEM) => LOCKED.to_owned(),
        _ => error.to_string(),
    }
}

/// The remedy if the privilege for kernel events is missing.
pub(super) const PRIVILEGE: &str = "give the program CAP_PERFMON, or run `sysctl kernel.perf_event_paranoid=1`";
/// The remedy if there are too many descriptors.
pub(super) const FILES: &str = "each takes up to two file descriptors, and a quarter of the limit is used: raise \
                                `ulimit -n`";
const LOCKED: &str = "the memory for their stacks exceeds what may be locked: raise `ulimit -l`, or run `sysctl \
                      kernel.perf_event_mlock_kb=65536`";

fn paranoid() -> Option<i32> {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

/// Whether this thread has a seccomp filter.
fn is_filtered() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

#[cfg(test)]
mod tests {
    use super::explain_on;
    use std::io;

    #[test]
    fn a_refusal_names_what_to_change() {
        let explain =
            |error, paranoid, is_filtered| explain_on(&io::Error::from_raw_os_error(error), paranoid, is_filtered);
        for (error, paranoid, is_filtered, remedy) in [
            // Debian's setting, which refuses all events, with and without a container around it.
            (libc::EACCES, Some(3), false, "is 3: run `sysctl kernel.perf_event_paranoid=2`"),
            (libc::EACCES, Some(4), true, "is 4: run `sysctl kernel.perf_event_paranoid=2`"),
            (libc::EPERM, Some(2), true, "--cap-add PERFMON"),
            (libc::EPERM, None, true, "--cap-add PERFMON"),
            (libc::EPERM, Some(2), false, "give the program CAP_PERFMON"),
            (libc::ENOSYS, None, true, "has no `perf_event_open`"),
            (libc::EINVAL, Some(3), true, "Invalid argument"),
        ] {
            let text = explain(error, paranoid, is_filtered);
            assert!(text.contains(remedy), "{error} {paranoid:?} {is_filtered}: {text}");
        }
    }
}
