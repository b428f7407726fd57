//! Arguments shared by several kinds of events: the span, fields, inputs, the source location, cuts.
//!
//! Fields are written as kernspan names them, or in the form that PyTorch gives the arguments of its operators.

use crate::{
    export::{category, json::Object},
    trace::{Attribution, Callsite, Cut, Fields, Span, Step, convention},
};

/// The arguments of spans and events that are not fields. A field of the same name is called `field.NAME`.
pub(crate) const RESERVED: [&str; 13] = [
    "External id",
    "src",
    "started",
    "finished",
    "Input Dims",
    "Input type",
    "Call stack",
    "heap",
    Span::CPU_TIME,
    "level",
    "parent",
    "caller",
    "follows_from",
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

/// The maximum number of inputs of an operator. PyTorch's have a few dozen; only a file that was tampered with has
/// more.
const MAX_INPUTS: usize = 1024;

/// Adds the inputs of an operator, and its other fields. The reader derives fields that follow the convention from the
/// inputs, so these are not written.
pub(super) fn write_torch_fields(args: &mut Object<'_>, fields: Fields<'_>) {
    let (mut shapes, mut dtypes): (Vec<&str>, Vec<&str>) = Default::default();
    for (name, value) in fields.iter() {
        for (prefix, list) in [(convention::SHAPE, &mut shapes), (convention::DTYPE, &mut dtypes)] {
            let index = name.strip_prefix(prefix).and_then(|index| index.parse::<usize>().ok());
            if let (Some(index @ ..MAX_INPUTS), Some(text)) = (index, value.as_str()) {
                list.resize(list.len().max(index + 1), "");
                list[index] = text;
            }
        }
    }
    // PyTorch writes both or neither. An input that is not a tensor has an empty type, which the reader skips.
    let count = shapes.len().max(dtypes.len());
    if count > 0 {
        shapes.resize(count, "");
        dtypes.resize(count, "");
        args.array("Input type", |all| dtypes.iter().for_each(|dtype| all.string(type_name(dtype))));
        args.array("Input Dims", |all| {
            shapes.iter().for_each(|shape| all.raw(if is_json(shape) { shape } else { "[]" }));
        });
    }
    let is_derived = |name: &str| {
        name == convention::FLOPS || name.starts_with(convention::SHAPE) || name.starts_with(convention::DTYPE)
    };
    for (name, value) in fields.iter().filter(|(name, _)| !is_derived(name)) {
        let reserved = RESERVED.contains(&name).then(|| format!("field.{name}"));
        let key = reserved.as_deref().unwrap_or(name);
        match value.as_str().filter(|text| text.starts_with('[') && is_json(text)) {
            Some(list) => args.raw_entry(key, list),
            None => args.entry(key, value),
        }
    }
}

/// Adds the ids by which readers find the caller of a Python function.
pub(super) fn write_python_ids(args: &mut Object<'_>, span: Span<'_>) {
    let is_python = |span: &Span<'_>| span.callsite().target() == category::PYTHON;
    args.number("Python id", span.id().index() + 1);
    match span.stack().skip(1).find(is_python) {
        Some(caller) => args.number("Python parent id", caller.id().index() + 1),
        None => args.null("Python parent id"),
    }
}

/// Returns PyTorch's name for an element type, which is that of C++.
fn type_name(dtype: &str) -> &str {
    match dtype {
        "f32" => "float",
        "f64" => "double",
        "f16" => "c10::Half",
        "bf16" => "c10::BFloat16",
        "i64" => "long int",
        "i32" => "int",
        "u8" => "unsigned char",
        other => other,
    }
}

/// Returns whether a text is JSON. The reader keeps lists as text.
#[cfg(feature = "read")]
fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Returns whether a text is JSON. Without the reader, no trace comes from PyTorch.
#[cfg(not(feature = "read"))]
fn is_json(_: &str) -> bool {
    false
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
