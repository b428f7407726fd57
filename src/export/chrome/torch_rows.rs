//! Parts of a PyTorch trace that are written unchanged: names of processes and rows, and markers of the window.

use super::{output::Output, row::RowText};
use crate::{export::json::Members, trace::RowId};
use std::io;

/// Writes the names and positions of processes and rows, including those on which nothing happened.
pub(super) fn write_names(out: &mut Output<'_>) -> io::Result<()> {
    let Some(torch) = out.trace.torch().filter(|_| out.torch().is_some()) else { return Ok(()) };
    for (pid, names) in &torch.processes {
        let row = row(pid, &RowId::Number(0));
        // Perfetto rejects an empty name.
        if let Some(name) = names.name.as_ref().filter(|name| !name.is_empty()) {
            out.events.metadata_of("process_name", &row).args(|args| args.string("name", name))?;
        }
        if let Some(label) = &names.label {
            out.events.metadata_of("process_labels", &row).args(|args| args.string("labels", label))?;
        }
        if let Some(index) = names.sort_index {
            out.events.metadata_of("process_sort_index", &row).args(|args| args.number("sort_index", index))?;
        }
    }
    for (&(pid, tid), names) in &torch.rows {
        let row = row(&RowId::Number(pid), &RowId::Number(tid));
        if let Some(name) = &names.name {
            out.events.metadata_of("thread_name", &row).args(|args| args.string("name", name))?;
        }
        if let Some(index) = names.sort_index {
            out.events.metadata_of("thread_sort_index", &row).args(|args| args.number("sort_index", index))?;
        }
    }
    Ok(())
}

/// Writes the marks of PyTorch's window.
pub(super) fn write_marks(out: &mut Output<'_>) -> io::Result<()> {
    let Some(torch) = out.trace.torch().filter(|_| out.torch().is_some()) else { return Ok(()) };
    for mark in &torch.marks {
        let row = row(&mark.process, &mark.thread);
        match mark.end {
            Some(end) => out.events.slice("Trace", &mark.name).on_row(&row).during(mark.start, end).args(|_| ())?,
            None => out.events.mark(&mark.name).on_row(&row).at(mark.start).args(|_| ())?,
        }
    }
    Ok(())
}

fn row(process: &RowId, thread: &RowId) -> RowText {
    RowText::of(Members::new(|event| {
        for (key, id) in [("pid", process), ("tid", thread)] {
            match id {
                RowId::Number(number) => event.number(key, *number),
                RowId::Text(text) => event.string(key, text),
            }
        }
    }))
}
