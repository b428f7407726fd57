//! The places in the source named by the spans and events of a file, and their fields.

use super::raw::Raw;
use crate::trace::{CallsiteData, CallsiteId, FieldData, FieldRange, Level, LoadsData, Value};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use std::{
    borrow::Cow,
    hash::{BuildHasher, Hash, Hasher},
    sync::Arc,
};

/// The callsites of a trace, without duplicates, and the fields of its spans and events. Equal fields are stored once.
#[derive(Debug, Default)]
pub(super) struct Callsites {
    /// The callsites, by kind, level, place in the source and name.
    ids: FxHashMap<TextKey, CallsiteId>,
    pub(super) table: Vec<CallsiteData>,
    pub(super) fields: Vec<FieldData>,
    /// The position of the first fields with this hash.
    ranges: FxHashMap<u64, FieldRange>,
    /// The position of the fields of these arguments: most spans have the same as an earlier one.
    known: FxHashMap<TextKey, FieldRange>,
    /// The number of bytes in the keys of `known`.
    known_bytes: usize,
    /// The texts of values, so that long ones are stored once.
    texts: FxHashSet<Arc<str>>,
    key: TextKey,
}

/// Several texts as one map key, which can be filled and looked up without allocating.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TextKey(Vec<u8>);

impl TextKey {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a text, and its length, so that no two lists of texts have the same key.
    pub(super) fn push(&mut self, text: &str) {
        self.push_number(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn push_number(&mut self, number: usize) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }
}

/// The kinds of events that have callsites.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Operator,
    Annotation,
    PythonFunction,
    Event,
}

impl Target {
    fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "cpu_op",
            Self::Annotation => "user_annotation",
            Self::PythonFunction => "python_function",
            Self::Event => "event",
        }
    }
}

impl Callsites {
    /// The maximum number of arguments, fields and values remembered. A file in which each span has different ones must
    /// not take much more memory than its trace.
    const REMEMBERED: usize = 1 << 18;
    /// The maximum number of bytes of arguments remembered, for the same reason.
    const REMEMBERED_BYTES: usize = 64 << 20;

    /// Returns the id of a callsite, and adds it if it is new.
    pub(super) fn id(&mut self, target: Target, name: &str, level: Option<Level>, source: Raw<'_>) -> CallsiteId {
        self.key.clear();
        self.key.push_number(target as usize + 16 * level.map_or(0, |level| level as usize + 1));
        self.key.push(source.0);
        self.key.push(name);
        if let Some(&id) = self.ids.get(&self.key) {
            return id;
        }
        let place = source.text();
        let place = place.as_deref().and_then(|place| place.rsplit_once(':'));
        let place = place.and_then(|(file, line)| Some((file.to_owned(), line.parse().ok()?)));
        let (file, line) = place.unzip();
        self.table.push(CallsiteData {
            name: Cow::Owned(name.to_owned()),
            target: Cow::Borrowed(target.as_str()),
            level: level.unwrap_or(Level::Info),
            file: file.map(Cow::Owned),
            line,
            fields: Vec::new(),
            loads: LoadsData::default(),
        });
        let id = CallsiteId::new(self.table.len() - 1);
        self.ids.insert(self.key.clone(), id);
        id
    }

    /// Returns a value. Equal texts are stored once.
    pub(super) fn value(&mut self, raw: Raw<'_>) -> Option<Value> {
        let text = match raw.0.as_bytes().first()? {
            b'"' => raw.text()?,
            b'[' | b'{' => Cow::Borrowed(raw.0),
            _ => return raw.value(),
        };
        if let Some(known) = self.texts.get(&*text) {
            return Some(Value::Str(Arc::clone(known)));
        }
        let text: Arc<str> = Arc::from(text);
        if self.texts.len() < Self::REMEMBERED {
            self.texts.insert(Arc::clone(&text));
        }
        Some(Value::Str(text))
    }

    /// Creates a field of a callsite.
    pub(super) fn field(&mut self, callsite: CallsiteId, name: &str, value: Value) -> FieldData {
        let names = &mut self.table[callsite.index()].fields;
        let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(Cow::Owned(name.to_owned()));
            names.len() - 1
        });
        FieldData { index: u32::try_from(index).unwrap_or(u32::MAX), value }
    }

    /// Returns the position of the fields of these arguments, if they were stored earlier.
    pub(super) fn known(&self, arguments: &TextKey) -> Option<FieldRange> {
        self.known.get(arguments).copied()
    }

    /// Remembers the position of the fields of these arguments.
    pub(super) fn remember(&mut self, arguments: &TextKey, fields: FieldRange) {
        self.known_bytes += arguments.0.len();
        if self.known.len() < Self::REMEMBERED && self.known_bytes < Self::REMEMBERED_BYTES {
            self.known.insert(arguments.clone(), fields);
        }
    }

    /// Stores the fields of a span or event, unless they are already there, and returns their position.
    pub(super) fn store(&mut self, fields: &mut Vec<FieldData>) -> FieldRange {
        if fields.is_empty() {
            return FieldRange::default();
        }
        let hash = hash(fields);
        if let Some(range) = self.ranges.get(&hash)
            && self.fields[range.as_range()] == **fields
        {
            return *range;
        }
        let (Ok(start), Ok(len)) = (u32::try_from(self.fields.len()), u32::try_from(fields.len())) else {
            return FieldRange::default();
        };
        let range = FieldRange { start, len };
        self.fields.append(fields);
        if self.ranges.len() < Self::REMEMBERED {
            self.ranges.entry(hash).or_insert(range);
        }
        range
    }
}

fn hash(fields: &[FieldData]) -> u64 {
    let mut hasher = FxBuildHasher.build_hasher();
    for FieldData { index, value } in fields {
        index.hash(&mut hasher);
        match value {
            Value::Bool(value) => value.hash(&mut hasher),
            Value::I64(value) => value.hash(&mut hasher),
            Value::U64(value) => value.hash(&mut hasher),
            Value::F64(value) => value.to_bits().hash(&mut hasher),
            Value::Str(value) => value.hash(&mut hasher),
        }
    }
    hasher.finish()
}
