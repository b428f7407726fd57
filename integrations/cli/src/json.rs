//! Rows as JSON, with times as whole nanoseconds.

use serde::Serialize;
use serde_json::Value;

/// Returns a value as JSON, in which each time is its number of nanoseconds.
pub(crate) fn json(value: &impl Serialize) -> Value {
    // Reports contain nothing that JSON cannot represent, such as maps with keys that are not strings.
    let mut json = serde_json::to_value(value).unwrap_or_default();
    shorten_times(&mut json);
    json
}

/// Replaces each `Duration`, which is an object of `secs` and `nanos`.
fn shorten_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let number = |key| members.get(key).and_then(Value::as_u64);
            if let (2, Some(secs), Some(nanos)) = (members.len(), number("secs"), number("nanos")) {
                *value = secs.saturating_mul(1_000_000_000).saturating_add(nanos).into();
            } else {
                members.values_mut().for_each(shorten_times);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(shorten_times),
        _ => {}
    }
}

/// Returns the fields of a row by name, for formats without nested objects: `latency.p50`.
pub(crate) fn flat(row: &Value) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    flatten(String::new(), row, &mut fields);
    fields
}

fn flatten(name: String, value: &Value, fields: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            flatten(name, value, fields);
        }),
        Value::Array(list) => fields.push((name, list.iter().map(text).collect::<Vec<_>>().join(" < "))),
        _ => fields.push((name, text(value))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{flat, json};
    use serde_json::json;
    use std::{collections::BTreeMap, time::Duration};

    #[test]
    fn times_are_nanoseconds() {
        let times = BTreeMap::from([("a", Some(Duration::new(2, 5))), ("b", None)]);
        assert_eq!(json(&times), json!({"a": 2_000_000_005_u64, "b": null}));
    }

    #[test]
    fn rows_are_flattened() {
        let row = json!({"name": "x", "latency": {"p50": 1, "p95": 2}, "stack": ["inner", "outer"], "none": null});
        let fields: Vec<_> = flat(&row).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(fields, ["name=x", "latency.p50=1", "latency.p95=2", "stack=inner < outer", "none="]);
    }
}
