use crate::{
    host::Callsite,
    trace::{CallsiteData, CallsiteId, Level},
};
use std::{borrow::Cow, collections::HashMap};

/// The callsites of a trace, each once.
#[derive(Debug, Default)]
pub(super) struct Callsites {
    by_address: HashMap<usize, CallsiteId>,
    /// Loops come back to few places.
    latest: Option<(usize, CallsiteId)>,
    table: Vec<CallsiteData>,
}

impl Callsites {
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

    pub(super) fn into_table(self) -> Vec<CallsiteData> {
        self.table
    }
}

fn describe(callsite: Callsite) -> CallsiteData {
    CallsiteData {
        name: Cow::Borrowed(callsite.name()),
        target: Cow::Borrowed(callsite.target()),
        level: match *callsite.level() {
            tracing::Level::TRACE => Level::Trace,
            tracing::Level::DEBUG => Level::Debug,
            tracing::Level::INFO => Level::Info,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::ERROR => Level::Error,
        },
        file: callsite.file().map(Cow::Borrowed),
        line: callsite.line(),
        fields: callsite.fields().iter().map(|field| Cow::Borrowed(field.name())).collect(),
    }
}
