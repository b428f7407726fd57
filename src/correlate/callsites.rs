use crate::{
    recording::Callsite,
    trace::{CallsiteData, CallsiteId, Level, convention},
};
use std::{borrow::Cow, collections::HashMap, sync::Arc};

/// The callsites of a trace, each once.
#[derive(Debug, Default)]
pub(super) struct Callsites {
    by_address: HashMap<usize, CallsiteId>,
    /// Loops come back to few places.
    latest: Option<(usize, CallsiteId)>,
    table: Vec<CallsiteData>,
    /// Those that are called otherwise, by what they are called.
    renamed: HashMap<CallsiteId, HashMap<Arc<str>, CallsiteId>>,
}

impl Callsites {
    /// Names of spans that are told apart in a trace. Past that they are called as in the source: whoever has so many counts with them.
    const NAMES: usize = 10_000;

    pub(super) fn id(&mut self, callsite: Callsite) -> CallsiteId {
        let address = std::ptr::from_ref(callsite).addr();
        if let Some((latest, id)) = self.latest
            && latest == address
        {
            return id;
        }
        let id = *self.by_address.entry(address).or_insert_with(|| {
            self.table.push(describe(callsite));
            CallsiteId::new(self.table.len() - 1)
        });
        self.latest = Some((address, id));
        id
    }

    /// Which of a callsite's fields says what its spans are called.
    pub(super) fn name_field(&self, id: CallsiteId) -> Option<u32> {
        let place = self.table[id.index()].fields.iter().position(|field| field == convention::NAME)?;
        u32::try_from(place).ok()
    }

    /// The callsite by another name.
    pub(super) fn renamed(&mut self, id: CallsiteId, name: &Arc<str>) -> CallsiteId {
        let names = self.renamed.entry(id).or_default();
        if let Some(&renamed) = names.get(name) {
            return renamed;
        }
        if self.table.len() >= Self::NAMES {
            return id;
        }
        self.table.push(CallsiteData { name: Cow::Owned(name.to_string()), ..self.table[id.index()].clone() });
        let renamed = CallsiteId::new(self.table.len() - 1);
        names.insert(Arc::clone(name), renamed);
        renamed
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn into_table(self) -> Vec<CallsiteData> {
        self.table
    }
}

/// The trace knows nothing of `tracing`, so it has levels of its own.
pub(super) fn level_of(level: tracing::Level) -> Level {
    match level {
        tracing::Level::TRACE => Level::Trace,
        tracing::Level::DEBUG => Level::Debug,
        tracing::Level::INFO => Level::Info,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::ERROR => Level::Error,
    }
}

fn describe(callsite: Callsite) -> CallsiteData {
    CallsiteData {
        name: Cow::Borrowed(callsite.name()),
        target: Cow::Borrowed(callsite.target()),
        level: level_of(*callsite.level()),
        file: callsite.file().map(Cow::Borrowed),
        line: callsite.line(),
        fields: callsite.fields().iter().map(|field| Cow::Borrowed(field.name())).collect(),
    }
}
