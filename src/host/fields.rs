//! A collector for the fields that spans and events record.

use crate::trace::{FieldData, Value};
use std::{
    cell::Cell,
    error::Error,
    fmt::{self, Write},
    sync::Arc,
};
use tracing::field::{Field, Visit};

thread_local! {
    /// An empty list that keeps its memory, so that collecting fields does not allocate.
    static SPARE: Cell<Vec<FieldData>> = const { Cell::new(Vec::new()) };
}

/// Collects the fields that `record` visits, and calls `use_fields` with them.
///
/// User code (`Debug`, `Display`) runs in here, so no lock or lane may be held around it; it may even reenter.
pub(super) fn collect<R>(record: impl FnOnce(&mut dyn Visit), use_fields: impl FnOnce(&mut Vec<FieldData>) -> R) -> R {
    // Thread-local storage is gone while the thread is being torn down.
    let mut collector = Collector(SPARE.try_with(Cell::take).unwrap_or_default());
    record(&mut collector);
    let result = use_fields(&mut collector.0);
    collector.0.clear();
    let _ = SPARE.try_with(|spare| spare.set(collector.0));
    result
}

struct Collector(Vec<FieldData>);

impl Collector {
    fn push(&mut self, field: &Field, value: Value) {
        self.0.push(FieldData { index: u32::try_from(field.index()).unwrap_or(u32::MAX), value });
    }
}

impl Visit for Collector {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, Value::F64(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, Value::I64(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, Value::U64(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, Value::Bool(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let value = if value.len() <= Value::MAX_TEXT { value.into() } else { text(format_args!("{value}")) };
        self.push(field, Value::Str(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.push(field, Value::Str(text(format_args!("{value}"))));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, Value::Str(text(format_args!("{value:?}"))));
    }
}

/// Formats text of bounded length. Formatting stops at the limit, since a tensor's `Debug` may print megabytes.
fn text(arguments: fmt::Arguments<'_>) -> Arc<str> {
    if let Some(literal) = arguments.as_str().filter(|literal| literal.len() <= Value::MAX_TEXT) {
        return literal.into();
    }
    let mut bounded = Bounded(String::new());
    if bounded.write_fmt(arguments).is_err() {
        bounded.0.push('…');
    }
    bounded.0.into()
}

struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = Value::MAX_TEXT - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::{Value, text};

    #[test]
    fn long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(&*text(format_args!("{}", "short")), "short");
        let cut = text(format_args!("{}", "é".repeat(Value::MAX_TEXT)));
        assert_eq!(cut.trim_end_matches('…').len(), Value::MAX_TEXT);
        assert!(cut.ends_with("é…"));
    }

    #[test]
    fn formatting_stops_once_there_is_enough() {
        struct Endless<'a>(&'a std::cell::Cell<u32>);
        impl std::fmt::Debug for Endless<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                loop {
                    self.0.set(self.0.get() + 1);
                    f.write_str("0123456789")?;
                }
            }
        }
        let writes = std::cell::Cell::new(0);
        let cut = text(format_args!("{:?}", Endless(&writes)));
        assert!(cut.starts_with("0123456789") && writes.get() < 110);
    }
}
