//! The places in the source that spans and events of a file name, and the fields of these.

use super::raw::Raw;
use crate::trace::{CallsiteData, CallsiteId, FieldData, FieldRange, Level, Value};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::{
    borrow::Cow,
    hash::{BuildHasher, Hash, Hasher},
};

/// The callsites of a trace, each once, and the fields of its spans and events. Equal fields are stored once.
#[derive(Debug, Default)]
pub(super) struct Callsites<'a> {
    ids: FxHashMap<Key<'a>, CallsiteId>,
    pub(super) table: Vec<CallsiteData>,
    pub(super) fields: Vec<FieldData>,
    /// Where the first fields with this hash are.
    ranges: FxHashMap<u64, FieldRange>,
    /// The arguments whose fields are stored, by their hash: most spans have the same as one before.
    known: FxHashMap<u64, (Arguments<'a>, FieldRange)>,
    /// Values by their text, so that long ones are stored once.
    values: FxHashMap<Raw<'a>, Option<Value>>,
}

/// The kind of event, its level, its name and its place in the source, which together tell callsites apart.
type Key<'a> = (Target, Option<Level>, Cow<'a, str>, Raw<'a>);

/// The kinds of events that have callsites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// A callsite, and the arguments of one of its spans.
type Arguments<'a> = (CallsiteId, Box<[(Cow<'a, str>, Raw<'a>)]>);

impl<'a> Callsites<'a> {
    /// The most arguments, fields and values that are remembered. A file in which each span has others must not take
    /// much more memory than its trace.
    const REMEMBERED: usize = 1 << 18;

    /// Returns the id of a callsite, and adds it if it is new.
    pub(super) fn id(
        &mut self,
        target: Target,
        name: Cow<'a, str>,
        level: Option<Level>,
        source: Raw<'a>,
    ) -> CallsiteId {
        let mut key = (target, level, name, source);
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        // A copy: the file's own text is far from that of other names, and would be slow to compare with.
        key.2 = Cow::Owned(key.2.into_owned());
        let place = source.text();
        let place = place.as_deref().and_then(|place| place.rsplit_once(':'));
        let place = place.and_then(|(file, line)| Some((file.to_owned(), line.parse().ok()?)));
        let (file, line) = place.unzip();
        self.table.push(CallsiteData {
            name: Cow::Owned(key.2.clone().into_owned()),
            target: Cow::Borrowed(target.as_str()),
            level: level.unwrap_or(Level::Info),
            file: file.map(Cow::Owned),
            line,
            fields: Vec::new(),
        });
        let id = CallsiteId::new(self.table.len() - 1);
        self.ids.insert(key, id);
        id
    }

    /// Returns a value, which is made once for all that have the same text.
    pub(super) fn value(&mut self, raw: Raw<'a>) -> Option<Value> {
        match raw.0.as_bytes().first()? {
            b'"' | b'[' | b'{' if self.values.len() < Self::REMEMBERED => {
                self.values.entry(raw).or_insert_with(|| raw.value()).clone()
            }
            b'"' | b'[' | b'{' => self.values.get(&raw).cloned().unwrap_or_else(|| raw.value()),
            _ => raw.value(),
        }
    }

    /// Makes a field of a callsite.
    pub(super) fn field(&mut self, callsite: CallsiteId, name: &str, value: Value) -> FieldData {
        let names = &mut self.table[callsite.index()].fields;
        let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(Cow::Owned(name.to_owned()));
            names.len() - 1
        });
        FieldData { index: u32::try_from(index).unwrap_or(u32::MAX), value }
    }

    /// Returns where the fields of these arguments are, if they were stored before.
    pub(super) fn known(&self, callsite: CallsiteId, arguments: &[(Cow<'a, str>, Raw<'a>)]) -> Option<FieldRange> {
        if arguments.is_empty() {
            return Some(FieldRange::default());
        }
        let ((at, stored), fields) = self.known.get(&FxBuildHasher.hash_one((callsite, arguments)))?;
        (*at == callsite && **stored == *arguments).then_some(*fields)
    }

    /// Remembers where the fields of these arguments are.
    pub(super) fn remember(&mut self, callsite: CallsiteId, arguments: &[(Cow<'a, str>, Raw<'a>)], fields: FieldRange) {
        if self.known.len() < Self::REMEMBERED {
            let hash = FxBuildHasher.hash_one((callsite, arguments));
            self.known.insert(hash, ((callsite, arguments.into()), fields));
        }
    }

    /// Stores the fields of a span or event, unless they are there already, and says where they are.
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
