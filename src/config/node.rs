//! A tree of settings with the position of each key and value, read from TOML, YAML or a variable.

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use toml::de::{DeTable, DeValue};

/// A line and a column, counted from 1.
pub(super) type Position = (usize, usize);

/// A value, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// `None` if it is not in a file.
    pub(super) position: Option<Position>,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// The text of a variable or an argument, which may stand for a number or for true and false.
    Untyped(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) position: Option<Position>,
}

/// Text that is not valid TOML or YAML.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) position: Option<Position>,
    pub(super) problem: String,
}

impl Node {
    /// Returns the value of a variable or an argument.
    pub(super) fn untyped(text: &str) -> Self {
        Self { position: None, value: Value::Untyped(text.to_owned()) }
    }

    /// Returns a map whose keys have no position.
    pub(super) fn map<'a>(entries: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        let entry = |(name, node): (&str, Self)| (Key { name: name.to_owned(), position: None }, node);
        Self { position: None, value: Value::Map(entries.into_iter().map(entry).collect()) }
    }

    pub(super) fn from_toml(text: &str) -> Result<Self, SyntaxError> {
        let table = DeTable::parse(text).map_err(|error| SyntaxError {
            position: error.span().map(|span| position_of(text, span.start)),
            problem: error.message().to_owned(),
        })?;
        let position = Some(position_of(text, table.span().start));
        Ok(Self { position, value: toml_table(text, table.get_ref()) })
    }

    /// Reads YAML, or JSON. If there are several documents, the first is read.
    pub(super) fn from_yaml(text: &str) -> Result<Self, SyntaxError> {
        let documents = MarkedYaml::load_from_str(text).map_err(|error| SyntaxError {
            position: Some((error.marker().line(), error.marker().col() + 1)),
            problem: error.info().to_owned(),
        })?;
        Ok(documents.first().map_or(Self { position: None, value: Value::Null }, yaml_node))
    }
}

/// Returns the position of a byte.
fn position_of(text: &str, byte: usize) -> Position {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

fn toml_table(text: &str, table: &DeTable<'_>) -> Value {
    let mut entries: Vec<_> = table.iter().collect();
    // As they are in the file.
    entries.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let node =
            Node { position: Some(position_of(text, value.span().start)), value: toml_value(text, value.get_ref()) };
        (Key { name: name.to_string(), position: Some(position_of(text, key.span().start)) }, node)
    };
    Value::Map(entries.into_iter().map(entry).collect())
}

fn toml_value(text: &str, value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(string) => Value::Text(string.to_string()),
        DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(integer) => Value::Integer(integer),
            Err(_) => Value::Text(integer.as_str().to_owned()),
        },
        DeValue::Float(float) => Value::Float(float.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(boolean) => Value::Bool(*boolean),
        DeValue::Datetime(datetime) => Value::Text(datetime.to_string()),
        DeValue::Array(array) => Value::List(
            array
                .iter()
                .map(|value| Node {
                    position: Some(position_of(text, value.span().start)),
                    value: toml_value(text, value.get_ref()),
                })
                .collect(),
        ),
        DeValue::Table(table) => toml_table(text, table),
    }
}

fn yaml_node(node: &MarkedYaml<'_>) -> Node {
    let value = match &node.data {
        YamlData::Value(Scalar::Null) | YamlData::Alias(_) => Value::Null,
        YamlData::Value(Scalar::Boolean(boolean)) => Value::Bool(*boolean),
        YamlData::Value(Scalar::Integer(integer)) => Value::Integer(*integer),
        YamlData::Value(Scalar::FloatingPoint(float)) => Value::Float(float.into_inner()),
        YamlData::Value(Scalar::String(text)) | YamlData::Representation(text, ..) => Value::Text(text.to_string()),
        YamlData::BadValue => Value::Text("a value that its tag does not allow".to_owned()),
        YamlData::Tagged(_, inner) => return yaml_node(inner),
        YamlData::Sequence(items) => Value::List(items.iter().map(yaml_node).collect()),
        YamlData::Mapping(entries) => {
            Value::Map(with_merged(entries.iter().map(|(key, value)| (yaml_key(key), yaml_node(value))).collect()))
        }
    };
    Node { position: Some(yaml_position(node)), value }
}

fn yaml_position(node: &MarkedYaml<'_>) -> Position {
    (node.span.start.line(), node.span.start.col() + 1)
}

fn yaml_key(key: &MarkedYaml<'_>) -> Key {
    let name = match yaml_node(key).value {
        Value::Text(text) => text,
        Value::Bool(boolean) => boolean.to_string(),
        Value::Integer(integer) => integer.to_string(),
        other => format!("{other:?}"),
    };
    Key { name, position: Some(yaml_position(key)) }
}

/// Replaces `<<: *defaults` by the keys of these defaults that the map does not have itself.
fn with_merged(entries: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
    let (merged, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| key.name == "<<");
    let maps = merged.into_iter().flat_map(|(_, node)| match node.value {
        Value::List(maps) => maps,
        _ => vec![node],
    });
    for map in maps {
        let Value::Map(entries) = map.value else { continue };
        for (key, value) in entries {
            if !own.iter().any(|(known, _)| known.name == key.name) {
                own.push((key, value));
            }
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::{Node, Position, Value};

    fn positions(node: &Node) -> Vec<(String, Position, Position)> {
        let Value::Map(entries) = &node.value else { panic!("{node:?}") };
        let place =
            |(key, node): &(super::Key, Node)| (key.name.clone(), key.position.unwrap(), node.position.unwrap());
        entries.iter().map(place).collect()
    }

    #[test]
    fn keys_and_values_have_lines_and_columns() {
        let expected = [("ä".to_owned(), (2, 1), (2, 6)), ("wait".to_owned(), (3, 1), (3, 8))];
        assert_eq!(positions(&Node::from_yaml("# one\nä:   1\nwait:  5\n").unwrap()), expected);
        let expected = [("wait".to_owned(), (2, 1), (2, 8)), ("dir".to_owned(), (3, 3), (3, 9))];
        assert_eq!(positions(&Node::from_toml("# ö\nwait = 0x5\n  dir = 'ä'\n").unwrap()), expected);
        assert_eq!(Node::from_toml("wait = 5\nwait = 6\n").unwrap_err().position.unwrap().0, 2);
        assert_eq!(Node::from_yaml("a: 1\n b: 2\n").unwrap_err().position.unwrap().0, 2);
    }

    #[test]
    fn yaml_maps_can_be_merged() {
        let text = "base: &base {wait: 1, active: 2}\nprofiling:\n  <<: *base\n  wait: 5\n";
        let Value::Map(entries) = Node::from_yaml(text).unwrap().value else { panic!() };
        let section = &entries[1].1;
        assert_eq!(positions(section), [("wait".to_owned(), (4, 3), (4, 9)), ("active".to_owned(), (1, 23), (1, 31))]);
    }
}
