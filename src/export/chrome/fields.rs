//! Arguments shared by several kinds of events: the span, fields, inputs, the source location, cuts.

use crate::{
    export::json::Object,
    trace::{Attribution, Callsite, Cut, Fields, Step},
};

/// The arguments of spans and events that are not fields. A field of the same name is called `field.NAME`.
pub(crate) const RESERVED: [&str; 10] = [
    "External id",
    "src",
    "started",
    "finished",
    "Input Dims",
    "Input type",
    "Call stack",
    "level",
    "parent",
    "caller",
];

/// Adds the number that links an event to the `cpu_op` of its span, if it has one.
#[inline]
pub(super) fn write_external_id(args: &mut Object<'_>, id: Option<usize>) {
    if let Some(id) = id {
        args.number("External id", id);
    }
}

/// Adds an argument for each field, except the one named `except`. A field with a `reserved` name is called
/// `field.NAME`.
pub(super) fn write(args: &mut Object<'_>, fields: Fields<'_>, except: Option<&str>, reserved: &[&str]) {
    for (name, value) in fields.iter().filter(|(name, _)| Some(*name) != except) {
        match reserved.contains(&name) {
            true => args.entry(&format!("field.{name}"), value),
            false => args.entry(name, value),
        }
    }
}

/// Adds the shapes and element types of an operation's inputs under PyTorch's names.
pub(super) fn write_inputs(args: &mut Object<'_>, fields: Fields<'_>) {
    let op = fields.op();
    let mut shapes = op.shapes().filter_map(|(_, shape)| dims(shape)).peekable();
    if shapes.peek().is_some() {
        args.array("Input Dims", |all| {
            shapes.for_each(|dims| all.array(|shape| dims.for_each(|dim| shape.number(dim))));
        });
    }
    let mut dtypes = op.dtypes().map(|(_, dtype)| dtype).peekable();
    if dtypes.peek().is_some() {
        args.array("Input type", |all| dtypes.for_each(|dtype| all.string(dtype)));
    }
}

/// Parses a shape such as `[64, 512]`. Returns `None` if it is anything else.
fn dims(shape: &str) -> Option<impl Iterator<Item = u64>> {
    let inner = shape.trim().strip_prefix('[')?.strip_suffix(']')?;
    let dims = inner.split(',').map(str::trim).filter(|dim| !dim.is_empty()).map(str::parse::<u64>);
    dims.clone().all(|dim| dim.is_ok()).then(|| dims.flatten())
}

/// Adds the source location of a callsite, if it is known.
pub(super) fn write_location(args: &mut Object<'_>, callsite: &Callsite) {
    if let Some(location) = callsite.location() {
        args.string("src", &location);
    }
}

/// Adds how the span of a call, work or memory was found, unless it is the innermost one around the call.
pub(super) fn write_attribution(args: &mut Object<'_>, attribution: Attribution, has_span: bool) {
    let expected = if has_span { Attribution::Direct } else { Attribution::Unattributed };
    if attribution != expected {
        args.string("attribution", attribution.as_str());
    }
}

/// Adds the step of work or an operation, if it is not the one in which its call was made.
pub(super) fn write_step(args: &mut Object<'_>, step: Option<&Step>) {
    match step {
        Some(step) => args.number("step", step.number()),
        None => args.null("step"),
    }
}

/// Adds which ends of a span or step lie outside the window.
pub(super) fn write_cut(args: &mut Object<'_>, cut: Cut) {
    if cut.start {
        args.bool("started", false);
    }
    if cut.end {
        args.bool("finished", false);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn shapes_are_lists_of_numbers_or_nothing() {
        let dims = |shape| super::dims(shape).map(Iterator::collect::<Vec<_>>);
        assert_eq!(dims("[64, 512]"), Some(vec![64, 512]));
        assert_eq!(dims("[]"), Some(vec![]));
        assert_eq!(dims("(64, 512)"), None);
        assert_eq!(dims("[batch, 512]"), None);
        assert_eq!(dims("[-1]"), None);
    }
}
