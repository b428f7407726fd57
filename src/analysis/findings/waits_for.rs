//! What a span waits for, by what the program says of it, its name, or the functions of its stack.

use crate::trace::{Span, Value, convention};

/// The thing that a span waits for, by its field [`convention::WAIT`] or by the words of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// A lock that another thread holds.
    Lock,
    /// Time to pass.
    Sleep,
    /// Threads that share its work, by the functions of its stack.
    Pool,
    /// Something that another thread, another process or a device does.
    Other,
}

impl WaitsFor {
    /// Words that mean the same wherever they are in a name.
    const WORDS: [(&str, Self); 8] = [
        ("lock", Self::Lock),
        ("mutex", Self::Lock),
        ("sleep", Self::Sleep),
        ("backoff", Self::Sleep),
        ("wait", Self::Other),
        ("waiting", Self::Other),
        ("recv", Self::Other),
        ("barrier", Self::Other),
    ];
    /// Words that mean waiting only alone, or together with one of [`OBJECTS`](Self::OBJECTS): `join` may also join
    /// texts, and `receive` may unpack.
    const VERBS: [&str; 3] = ["join", "receive", "acquire"];
    const OBJECTS: [&str; 10] =
        ["thread", "threads", "worker", "workers", "handle", "handles", "task", "tasks", "channel", "queue"];

    pub(super) fn of(span: Span<'_>) -> Option<Self> {
        match span.field(convention::WAIT) {
            Some(Value::Bool(false)) => None,
            Some(value) => match value.as_str() {
                Some("none") => None,
                Some("lock") => Some(Self::Lock),
                Some("sleep") => Some(Self::Sleep),
                _ => Some(Self::Other),
            },
            None => Self::of_name(span.name()),
        }
    }

    /// Whether the program says that a span does not wait.
    pub(super) fn is_denied(span: Span<'_>) -> bool {
        span.field(convention::WAIT).is_some() && Self::of(span).is_none()
    }

    /// Returns what a thread waits for that is in these functions of the runtime and the C library.
    pub(super) fn of_functions<'a>(functions: impl Iterator<Item = &'a str>) -> Self {
        let text = functions.collect::<Vec<_>>().join(" ").to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        // A condition variable unlocks a mutex and locks it again.
        match () {
            () if has(&["condvar", "pthread_cond"]) => Self::Other,
            () if has(&["mutex", "rwlock", "lock_contended", "lock_slow"]) => Self::Lock,
            () if has(&["sleep"]) => Self::Sleep,
            () if has(&["join", "scope", "rayon", "in_worker"]) => Self::Pool,
            () => Self::Other,
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        let words = || name.split(|it: char| !it.is_alphanumeric()).filter(|word| !word.is_empty());
        let has = |known: &str| words().any(|word| word.eq_ignore_ascii_case(known));
        let by_word = Self::WORDS.iter().find(|(word, _)| has(word)).map(|(_, kind)| *kind);
        let is_verb = Self::VERBS.iter().any(|verb| has(verb));
        let by_verb = is_verb && (words().count() == 1 || Self::OBJECTS.iter().any(|object| has(object)));
        by_word.or(by_verb.then_some(Self::Other))
    }
}

#[cfg(test)]
mod tests {
    use super::WaitsFor;

    #[test]
    fn spans_that_wait_are_recognised_by_words_of_their_names() {
        for name in ["lock_params", "Mutex::lock", "acquire lock"] {
            assert_eq!(WaitsFor::of_name(name), Some(WaitsFor::Lock), "{name}");
        }
        for name in ["wait", "wait_for_workers", "grads.recv", "barrier", "join", "join_workers", "acquire"] {
            assert_eq!(WaitsFor::of_name(name), Some(WaitsFor::Other), "{name}");
        }
        assert_eq!(WaitsFor::of_name("sleep"), Some(WaitsFor::Sleep));
        for name in
            ["block", "clock", "await_less", "join_heads", "receive_field", "acquire_image", "blocked_matmul", ""]
        {
            assert_eq!(WaitsFor::of_name(name), None, "{name}");
        }
    }
}
