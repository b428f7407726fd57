//! Spans in the JSON of OTLP, as Jaeger gives them back.

use serde_json::Value as Json;
use std::collections::BTreeMap;

/// A span with what it belongs to. Ids are hexadecimal, times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace_id: String,
    pub id: String,
    /// Empty if there is none.
    pub parent: String,
    pub name: String,
    pub kind: i64,
    pub start: u64,
    pub end: u64,
    pub attributes: Attributes,
    pub events: Vec<Event>,
    pub links: Vec<Link>,
    /// Unset, ok or error, and what was said of it.
    pub status: (i64, String),
    pub dropped_attributes: u64,
    pub resource: Attributes,
    pub scope: Scope,
}

pub type Attributes = BTreeMap<String, Value>;

#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub name: String,
    pub time: u64,
    pub attributes: Attributes,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    pub trace_id: String,
    pub span_id: String,
    pub trace_state: String,
    pub attributes: Attributes,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    pub name: String,
    pub version: String,
}

/// The value of an attribute, with its type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Bool(bool),
    Int(i64),
    Double(f64),
    List(Vec<Value>),
    Map(Attributes),
    /// In base64.
    Bytes(String),
    Empty,
}

/// All spans of an `ExportTraceServiceRequest`, or of what looks like one.
pub fn spans(request: &Json) -> Vec<Span> {
    let mut spans = Vec::new();
    for resource in list(&request["resourceSpans"]) {
        let attributes = attributes(&resource["resource"]["attributes"]);
        for scope in list(&resource["scopeSpans"]) {
            let named = Scope { name: text(&scope["scope"]["name"]), version: text(&scope["scope"]["version"]) };
            spans.extend(list(&scope["spans"]).iter().map(|one| span(one, &attributes, &named)));
        }
    }
    spans
}

fn span(span: &Json, resource: &Attributes, scope: &Scope) -> Span {
    let event = |event: &Json| Event {
        name: text(&event["name"]),
        time: unsigned(&event["timeUnixNano"]),
        attributes: attributes(&event["attributes"]),
    };
    let link = |link: &Json| Link {
        trace_id: text(&link["traceId"]),
        span_id: text(&link["spanId"]),
        trace_state: text(&link["traceState"]),
        attributes: attributes(&link["attributes"]),
    };
    Span {
        trace_id: text(&span["traceId"]),
        id: text(&span["spanId"]),
        parent: text(&span["parentSpanId"]),
        name: text(&span["name"]),
        kind: int(&span["kind"]),
        start: unsigned(&span["startTimeUnixNano"]),
        end: unsigned(&span["endTimeUnixNano"]),
        attributes: attributes(&span["attributes"]),
        events: list(&span["events"]).iter().map(event).collect(),
        links: list(&span["links"]).iter().map(link).collect(),
        status: (int(&span["status"]["code"]), text(&span["status"]["message"])),
        dropped_attributes: unsigned(&span["droppedAttributesCount"]),
        resource: resource.clone(),
        scope: scope.clone(),
    }
}

fn attributes(attributes: &Json) -> Attributes {
    let attribute = |attribute: &Json| (text(&attribute["key"]), value(&attribute["value"]));
    let found: Attributes = list(attributes).iter().map(attribute).collect();
    assert_eq!(found.len(), list(attributes).len(), "a key twice: {attributes}");
    found
}

fn value(value: &Json) -> Value {
    let Some((kind, value)) = value.as_object().and_then(|value| value.iter().next()) else { return Value::Empty };
    match kind.as_str() {
        "stringValue" => Value::Text(text(value)),
        "boolValue" => Value::Bool(value.as_bool().unwrap()),
        "intValue" => Value::Int(int(value)),
        "doubleValue" => Value::Double(double(value)),
        "arrayValue" => Value::List(list(&value["values"]).iter().map(self::value).collect()),
        "kvlistValue" => Value::Map(attributes(&value["values"])),
        "bytesValue" => Value::Bytes(text(value)),
        _ => panic!("what is {kind}?"),
    }
}

/// A missing text is empty: protobuf's JSON leaves out defaults.
fn text(text: &Json) -> String {
    if text.is_null() { String::new() } else { text.as_str().unwrap_or_else(|| panic!("no text: {text}")).to_owned() }
}

fn list(list: &Json) -> &[Json] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A number: one of 64 bits is a text in protobuf's JSON, one of fewer is not.
fn int(number: &Json) -> i64 {
    match number {
        Json::Null => 0,
        Json::String(number) => number.parse().unwrap(),
        number => number.as_i64().unwrap_or_else(|| panic!("no integer: {number}")),
    }
}

fn unsigned(number: &Json) -> u64 {
    match number {
        Json::Null => 0,
        Json::String(number) => number.parse().unwrap(),
        number => number.as_u64().unwrap_or_else(|| panic!("no integer: {number}")),
    }
}

/// A number that is not finite is a text in protobuf's JSON, which Rust can parse.
fn double(number: &Json) -> f64 {
    match number {
        Json::Null => 0.0,
        Json::String(number) => number.parse().unwrap(),
        number => number.as_f64().unwrap(),
    }
}
