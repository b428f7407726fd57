//! The events of GPUs: names of rows, calls, ranges of steps and spans, work, waits, allocations and overheads.

use super::{
    calls, counters,
    event::Scope,
    fields,
    flavor::Flavor,
    output::Output,
    rows::{NO_DEVICE, Rows},
    torch::{Collectives, is_op_on_gpu},
    work,
};
use crate::{
    export::{
        category,
        flows::LaunchFlows,
        gpu_ranges::{Cause, GpuRange, gpu_ranges},
    },
    trace::{GpuAnnotation, MemoryChange, Trace, WaitKind},
};
use std::{fmt::Write as _, io};

/// The sort index of GPU 0. Kineto's GPUs are sorted after all processes.
const FIRST_SORT_INDEX: i64 = 5_000_000;

/// Writes everything of GPUs.
pub(super) fn write(out: &mut Output<'_>) -> io::Result<()> {
    let ranges = gpu_ranges(out.trace);
    let rows = Rows::new(out.trace, &ranges);
    let flows = LaunchFlows::new(out.trace);
    let collectives = Collectives::new(out.trace, &flows, out.options.flavor);
    write_names(out, &rows)?;
    calls::write(out, &flows, &collectives)?;
    // Before the work inside the ranges: of events that begin together, readers take the first for the outer one.
    write_ranges(out, &ranges, &rows)?;
    work::write(out, &rows, &flows, &collectives)?;
    write_waits(out, &rows)?;
    write_allocations(out)?;
    if out.options.flavor == Flavor::Kineto {
        counters::write_tracks(out)?;
    }
    write_overheads(out, &rows)
}

fn write_names(out: &mut Output<'_>, rows: &Rows) -> io::Result<()> {
    let process = &out.trace.metadata().process;
    let mut last = None;
    for (index, (row, name)) in rows.names().into_iter().enumerate() {
        let gpu = row.pid;
        if gpu != NO_DEVICE && last.replace(gpu) != Some(gpu) {
            out.name_process(gpu, process, &format!("GPU {gpu}"), FIRST_SORT_INDEX + gpu)?;
        }
        out.name_row(row, name, index as i64)?;
    }
    Ok(())
}

fn write_ranges(out: &mut Output<'_>, ranges: &[GpuRange], rows: &Rows) -> io::Result<()> {
    let trace = out.trace;
    let mut name = String::new();
    for range in ranges {
        if out.options.flavor == Flavor::TorchTensorBoard && is_op_on_gpu(trace, range.cause) {
            continue;
        }
        name.clear();
        // A `String` takes all that is written to it.
        let _ = match range.cause {
            Cause::Step(step) => write!(name, "ProfilerStep#{}", trace.steps()[step.index()].number()),
            Cause::Span(span) => write!(name, "{}", trace.span(span).name()),
            Cause::Annotation(_) => write!(name, "{}", annotation(trace, range.cause).map_or("", |it| &it.name)),
        };
        let event = out.events.slice("gpu_user_annotation", &name);
        event.on(rows.range(range)).during(range.start, range.end).args(|args| match range.cause {
            Cause::Step(step) => args.number("step", trace.steps()[step.index()].number()),
            Cause::Span(span) => args.number("External id", span.index() + 1),
            Cause::Annotation(_) => {
                let span = annotation(trace, range.cause).and_then(|annotation| annotation.span);
                fields::write_external_id(args, span.map(|span| span.index() + 1));
            }
        })?;
    }
    Ok(())
}

/// Returns the annotation of PyTorch that a range is.
fn annotation(trace: &Trace, cause: Cause) -> Option<&GpuAnnotation> {
    match cause {
        Cause::Annotation(index) => trace.torch()?.gpu_annotations.get(index),
        _ => None,
    }
}

fn write_waits(out: &mut Output<'_>, rows: &Rows) -> io::Result<()> {
    for (wait, &row) in out.trace.waits().zip(&rows.waits) {
        let (kind, owner) = (wait.kind(), out.external_id(wait.span()));
        out.events.slice(category::WAIT, kind.as_str()).on(row).during(wait.start(), wait.end()).args(|args| {
            fields::write_external_id(args, owner);
            args.string("cuda_sync_kind", kind.as_str());
            if matches!(kind, WaitKind::Event | WaitKind::StreamForEvent) {
                // Kineto writes -1 if it is unknown which stream recorded the event.
                args.number("wait_on_stream", -1);
                args.number("wait_on_cuda_event_record_corr_id", -1);
                args.number("wait_on_cuda_event_id", wait.event().map_or(-1, i64::from));
            }
            args.number("stream", wait.stream().map_or(-1, i64::from));
            args.number("correlation", wait.correlation());
            args.number("device", row.pid);
            args.number("context", wait.context());
        })?;
    }
    Ok(())
}

fn write_allocations(out: &mut Output<'_>) -> io::Result<()> {
    // The device types of PyTorch.
    const CPU: u32 = 0;
    const CUDA: u32 = 1;
    for (index, allocation) in out.trace.allocations().enumerate() {
        let (row, owner) = (out.row(allocation.track()), out.external_id(allocation.span()));
        let event = out.events.instant(Scope::Thread, "cpu_instant_event", "[memory]");
        event.on(row).at(allocation.at()).args(|args| {
            fields::write_external_id(args, owner);
            args.number("Device Type", CUDA);
            args.number("Device Id", allocation.device().as_u32());
            args.number("Addr", allocation.address());
            args.number("Bytes", allocation.delta());
            if allocation.bytes().is_none() {
                args.bool("Bytes unknown", true);
            } else if allocation.bytes() == Some(0) && allocation.change() == MemoryChange::Free {
                // The sign of its bytes does not tell it from an allocation.
                args.bool("Freed", true);
            }
            args.number("Total Allocated", allocation.in_use());
            // It is unknown how much a pool has reserved, but it is no less than what is in use.
            args.number("Total Reserved", allocation.reserved());
            args.number("Ev Idx", index);
            args.bool("pooled", allocation.pooled());
            if allocation.by_framework() {
                args.bool("by framework", true);
            }
            fields::write_attribution(args, allocation.attribution(), owner.is_some());
        })?;
    }
    let rows = out.rows();
    let on_host = out.trace.torch().into_iter().flat_map(|torch| &torch.host_allocations);
    for (index, allocation) in (out.trace.allocations().len()..).zip(on_host) {
        let event = out.events.instant(Scope::Thread, "cpu_instant_event", "[memory]");
        event.on_row(&rows[allocation.track.index()]).at(allocation.at).args(|args| {
            args.number("Device Type", CPU);
            args.number("Device Id", -1);
            args.number("Addr", allocation.address);
            args.number("Bytes", allocation.delta);
            args.number("Total Allocated", allocation.in_use);
            // The host's allocator reserves nothing.
            args.number("Total Reserved", 0);
            args.number("Ev Idx", index);
        })?;
    }
    Ok(())
}

fn write_overheads(out: &mut Output<'_>, rows: &Rows) -> io::Result<()> {
    for (overhead, &row) in out.trace.overheads().iter().zip(&rows.overheads) {
        out.events.slice(category::OVERHEAD, overhead.name()).on(row).during(overhead.start(), overhead.end()).args(
            |args| {
                if let Some(thread) = overhead.thread() {
                    args.number("thread", thread.as_u64());
                }
            },
        )?;
    }
    Ok(())
}
