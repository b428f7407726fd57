//! What frameworks were asked to do.

use super::{
    json::Json,
    kineto::{Kineto, fields, op_inputs},
    rows::tid,
};
use crate::trace::{Attribution, Operation};
use std::io::{self, Write};

/// Arguments that are ours, as for spans.
const ARGUMENTS: [&str; 5] = ["External id", "span", "attribution", "Input Dims", "Input type"];

impl<W: Write> Kineto<'_, W> {
    /// Instants on the rows of the threads that told of them.
    pub(super) fn operations(&mut self) -> io::Result<()> {
        let mut texts: Vec<Option<OperationText>> = self.trace.operations.iter().map(|_| None).collect();
        let tids: Vec<_> = self.trace.tracks().iter().map(tid).collect();
        let pid = self.pid;
        for told in self.trace.operations() {
            let text = &mut texts[told.operation_id().index()];
            let text = text.get_or_insert_with(|| OperationText::of(told.operation()));
            let at = self.time(told.at());
            let json = self.event();
            json.raw("{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"operation\",\"name\":").raw(&text.name);
            json.raw(",\"pid\":").number(pid).raw(",\"tid\":").number(tids[told.track_id().index()]);
            json.raw(",\"ts\":").raw(at).raw(",\"args\":{");
            if let Some(span) = told.span() {
                json.raw("\"External id\":").number(span.id().index() + 1).raw(",\"span\":").string(span.name());
            }
            if told.attribution() != Attribution::Direct {
                json.raw(if told.span().is_some() { "," } else { "" });
                json.raw("\"attribution\":").string(told.attribution().as_str());
            }
            json.raw(&text.args).raw("}}").pass_on()?;
        }
        Ok(())
    }
}

/// What is the same each time an operation is told of, as JSON.
struct OperationText {
    name: Vec<u8>,
    /// After others.
    args: Vec<u8>,
}

impl OperationText {
    fn of(operation: &Operation) -> Self {
        let [mut name, mut args] = std::array::from_fn(|_| Json::new(io::sink()));
        name.string(operation.name());
        op_inputs(&mut args, operation.fields());
        fields(&mut args, operation.fields(), None, &ARGUMENTS);
        Self { name: name.into_buffer(), args: args.into_buffer() }
    }
}
