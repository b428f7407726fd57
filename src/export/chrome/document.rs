//! The JSON document of a trace.
//!
//! Three things make readers fail: an array after `traceEvents`, `"rank":0` without a space, and ranges that cross on a
//! row.

use super::{
    event::EventWriter, gpu, header, host, operations, options::Options, output::Output, rows::host_pid, spans,
    times::Times, torch_rows,
};
use crate::{analysis::Analysis, export::steps_nest::steps_nest};
use std::io::{self, Write};

/// Writes the document of a trace.
pub(super) fn write(window: &Analysis<'_>, options: Options, out: &mut dyn Write) -> io::Result<()> {
    let trace = window.trace();
    let times = Times::new(trace, options.flavor);
    let events = EventWriter::new(out, times, &header::members(window, options, times));
    let mut out = Output { trace, options, pid: host_pid(trace), events };
    torch_rows::write_names(&mut out)?;
    if out.torch().is_some() {
        // PyTorch's steps are also spans.
        host::write_names(&mut out, true)?;
    } else {
        let nested_steps = steps_nest(trace);
        host::write_names(&mut out, nested_steps)?;
        host::write_steps(&mut out, nested_steps)?;
    }
    spans::write(&mut out)?;
    host::write_events(&mut out)?;
    operations::write(&mut out)?;
    host::write_counters(&mut out)?;
    host::write_losses(&mut out)?;
    gpu::write(&mut out)?;
    torch_rows::write_marks(&mut out)?;
    // TensorBoard's plugin cuts the text at its last `]`.
    let name = format!("{}#{}", trace.metadata().process.replace(']', ")"), trace.window());
    out.events.finish(&name)
}
