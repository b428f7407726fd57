//! The state shared by the writers of all kinds of events, and the names of processes and rows.

use super::{
    event::EventWriter,
    flavor::{Flavor, Options},
    rows::{Row, RowText},
};
use crate::{
    export::json::Members,
    trace::{RowId, Span, Torch, Trace, Track},
};
use std::io;

/// A document being written.
pub(super) struct Output<'a> {
    pub(super) trace: &'a Trace,
    pub(super) options: Options,
    /// The number of the process.
    pub(super) pid: i64,
    pub(super) events: EventWriter<'a>,
}

impl<'a> Output<'a> {
    /// Returns the row of a track.
    pub(super) fn row(&self, track: &Track) -> Row {
        Row::of_track(self.pid, track)
    }

    /// Returns the rows of all tracks, by the tracks' ids.
    pub(super) fn rows(&self) -> Vec<RowText> {
        self.trace.tracks().iter().map(|track| self.row(track).into()).collect()
    }

    /// Returns the number that links an event to the `cpu_op` of its span.
    ///
    /// For TensorBoard's plugin, an event without a span has 0: otherwise the plugin gives it to the first step or
    /// module.
    pub(super) fn external_id(&self, span: Option<Span<'_>>) -> Option<usize> {
        let no_span = (self.options.flavor == Flavor::TorchTensorBoard).then_some(0);
        span.map(|span| span.id().index() + 1).or(no_span)
    }

    /// Returns the parts specific to a PyTorch trace. They are written as PyTorch wrote them, except in the flavor of
    /// TensorBoard's plugin.
    pub(super) fn torch(&self) -> Option<&'a Torch> {
        self.trace.torch().filter(|_| self.options.flavor == Flavor::Kineto)
    }

    /// Writes the name of a process, and its position among the others, unless the trace already has its own.
    pub(super) fn name_process(&mut self, pid: i64, name: &str, label: &str, sort_index: i64) -> io::Result<()> {
        if self.torch().is_some_and(|torch| torch.processes.contains_key(&RowId::Number(pid))) {
            return Ok(());
        }
        let row = Row { pid, tid: 0 };
        // Perfetto rejects an empty name.
        if !name.is_empty() {
            self.events.metadata("process_name", row).args(|args| args.string("name", name))?;
        }
        self.events.metadata("process_labels", row).args(|args| args.string("labels", label))?;
        self.events.metadata("process_sort_index", row).args(|args| args.number("sort_index", sort_index))
    }

    /// Writes the name of a row, and its position within its process, unless the trace already has its own.
    pub(super) fn name_row(&mut self, row: Row, name: &str, sort_index: i64) -> io::Result<()> {
        let rows = self.torch().map(|torch| &torch.rows);
        if rows.is_some_and(|rows| rows.contains_key(&(row.pid, row.tid))) {
            return Ok(());
        }
        // Next to the row that it extends.
        let main = rows.and_then(|rows| rows.get(&(row.pid, row.tid.rem_euclid(Row::TID_STRIDE))));
        let sort_index = main.and_then(|main| main.sort_index).unwrap_or(sort_index);
        self.events.metadata("thread_name", row).args(|args| args.string("name", name))?;
        self.events.metadata("thread_sort_index", row).args(|args| args.number("sort_index", sort_index))
    }

    /// Writes the names and positions that a PyTorch trace gives its processes and rows, including those on which
    /// nothing happened.
    pub(super) fn write_torch_names(&mut self) -> io::Result<()> {
        let Some(torch) = self.torch() else { return Ok(()) };
        for (pid, names) in &torch.processes {
            let row = torch_row(pid, &RowId::Number(0));
            // Perfetto rejects an empty name.
            if let Some(name) = names.name.as_ref().filter(|name| !name.is_empty()) {
                self.events.metadata_of("process_name", &row).args(|args| args.string("name", name))?;
            }
            if let Some(label) = &names.label {
                self.events.metadata_of("process_labels", &row).args(|args| args.string("labels", label))?;
            }
            if let Some(index) = names.sort_index {
                self.events.metadata_of("process_sort_index", &row).args(|args| args.number("sort_index", index))?;
            }
        }
        for (&(pid, tid), names) in &torch.rows {
            let row = torch_row(&RowId::Number(pid), &RowId::Number(tid));
            if let Some(name) = &names.name {
                self.events.metadata_of("thread_name", &row).args(|args| args.string("name", name))?;
            }
            if let Some(index) = names.sort_index {
                self.events.metadata_of("thread_sort_index", &row).args(|args| args.number("sort_index", index))?;
            }
        }
        Ok(())
    }

    /// Writes the marks of PyTorch's window.
    pub(super) fn write_torch_marks(&mut self) -> io::Result<()> {
        let Some(torch) = self.torch() else { return Ok(()) };
        for mark in &torch.marks {
            let row = torch_row(&mark.process, &mark.thread);
            let event = match mark.end {
                Some(end) => self.events.slice("Trace", &mark.name).on_row(&row).during(mark.start, end),
                None => self.events.mark(&mark.name).on_row(&row).at(mark.start),
            };
            event.args(|_| ())?;
        }
        Ok(())
    }
}

/// Returns a row of a PyTorch trace, whose numbers may be texts.
fn torch_row(process: &RowId, thread: &RowId) -> RowText {
    RowText::of(Members::new(|event| {
        for (key, id) in [("pid", process), ("tid", thread)] {
            match id {
                RowId::Number(number) => event.number(key, *number),
                RowId::Text(text) => event.string(key, text),
            }
        }
    }))
}
