//! Arguments of PyTorch's operators and functions, under the names and in the form that PyTorch gives them.

use super::fields;
use crate::{
    export::{category, json::Object},
    trace::{Fields, Span, convention},
};

/// The maximum number of inputs of an operator. PyTorch's have a few dozen; only a file that was tampered with has
/// more.
const MAX_INPUTS: usize = 1024;

/// Adds the inputs of an operator, and its other fields. The reader derives fields that follow the convention from the
/// inputs, so these are not written.
pub(super) fn write(args: &mut Object<'_>, fields: Fields<'_>) {
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
        let reserved = fields::RESERVED.contains(&name).then(|| format!("field.{name}"));
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
