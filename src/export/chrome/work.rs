//! Kernels, copies and fills, and the arrows that end at them.

use super::{
    event::Head,
    fields,
    flavor::Times,
    output::Output,
    rows::{RowText, Rows},
    torch::Collectives,
};
use crate::{
    export::{
        category,
        flows::LaunchFlows,
        json::{Members, Object},
        work_text::{Cache, OperationNames, WorkKey},
    },
    trace::{ApiCall, Attribution, Collective, Detail, Device, Kernel, Work},
};
use std::io;

/// Writes all work on the rows of its streams.
pub(super) fn write(
    out: &mut Output<'_>,
    rows: &Rows,
    flows: &LaunchFlows,
    collectives: &Collectives,
) -> io::Result<()> {
    let times = Times::new(out.trace, out.options.flavor);
    let rows: Vec<_> = rows.streams.iter().copied().map(RowText::from).collect();
    let mut texts: Cache<_, WorkText> = Cache::default();
    let mut names = OperationNames::default();
    for work in out.trace.work() {
        let text = texts.get_or_insert_with((work.stream_id(), WorkKey::of(work)), || {
            let device = out.trace.device(work.stream().device());
            WorkText::new(work, device)
        });
        let row = &rows[work.stream_id().index()];
        let collective = work.call().and_then(|call| collectives.get(ApiCall::id(call)));
        let owner = collective.map(|collective| collective.id).or(out.external_id(work.span()));
        let mut digits = itoa::Buffer::new();
        let correlation = digits.format(work.correlation());
        out.events.event(&text.head).on_row(row).during(work.start(), work.end()).args(|args| {
            fields::write_external_id(args, owner);
            match work.kernel().map(|kernel| kernel.queued) {
                Some(Some(queued)) => args.micros("queued", &times.at(queued)),
                Some(None) => args.number("queued", 0),
                None => {}
            }
            args.members(&text.stream);
            args.digits("correlation", correlation);
            args.members(&text.launch);
            args.members(&std::mem::take(&mut text.raw_name));
            write_details(args, work);
            if work.step_id() != out.trace.step_at(work.call().map_or(work.start(), ApiCall::start)) {
                fields::write_step(args, work.step());
            }
            if let Some((operations, spans)) = names.of(work) {
                args.string("ops", operations);
                if let Some(spans) = spans {
                    args.string("spans", spans);
                }
            }
        })?;
        if flows.leads_to(work.id()) {
            out.events.arrow_to(LaunchFlows::CATEGORY, correlation, row)?;
        }
    }
    Ok(())
}

/// Adds the arguments in which pieces of work with the same key differ.
fn write_details(args: &mut Object<'_>, work: Work<'_>) {
    if work.kernel().is_none() {
        args.number("bytes", work.bytes());
        if let Some(rate) = work.bytes_per_second() {
            args.float("memory bandwidth (GB/s)", rate / 1e9);
        }
    }
    if let Some(node) = work.graph() {
        args.number("graph id", node.graph);
        args.number("graph node id", node.node);
    }
    if work.attribution() != Attribution::Direct {
        args.string("attribution", work.attribution().as_str());
    }
    if let Detail::Fill(fill) = work.detail() {
        args.number("value", fill.value);
    }
    if let Some(collective) = work.collective() {
        write_collective(args, collective);
    }
}

/// The text shared by all work with the same key on a stream.
#[derive(Debug)]
struct WorkText {
    head: Head,
    stream: Members,
    launch: Members,
    /// Raw names of templates are long, and no reader needs them: only the first piece of work has one.
    raw_name: Members,
}

impl WorkText {
    fn new(work: Work<'_>, device: Option<&Device>) -> Self {
        let stream = work.stream();
        let kernel = work.kernel();
        Self {
            head: Head::slice(category::of_work(work), &work.name().to_string()),
            stream: Members::new(|args| {
                args.number("device", stream.device().as_u32());
                args.number("context", stream.context());
                args.number("stream", stream.number());
            }),
            launch: Members::new(|args| kernel.iter().for_each(|kernel| write_launch(args, kernel, device))),
            raw_name: Members::new(|args| {
                if let Some(kernel) = kernel.filter(|kernel| kernel.raw_name != kernel.name) {
                    args.string("raw name", &kernel.raw_name);
                }
            }),
        }
    }
}

/// Adds what PyTorch says of an exchange of data between ranks.
fn write_collective(args: &mut Object<'_>, collective: &Collective) {
    args.string("Collective name", &collective.operation);
    args.number("In msg nelems", collective.elements_in);
    args.number("Out msg nelems", collective.elements_out);
    args.number("Group size", collective.group_size);
    args.string("dtype", &collective.dtype);
    args.string("Process Group Name", &collective.group);
    args.string("Process Group Description", &collective.description);
    args.string("Process Group Ranks", &format!("{:?}", collective.ranks));
    if let Some(sequence) = collective.sequence {
        args.number("Seq", sequence);
    }
    if !collective.algorithm.is_empty() {
        args.string("Algorithm", &collective.algorithm);
    }
    if !collective.protocol.is_empty() {
        args.string("Protocol", &collective.protocol);
    }
    if collective.channels > 0 {
        args.number("Channels", collective.channels);
    }
    // Not a number: those of JSON are exact up to 53 bits only.
    if let Some(communicator) = collective.communicator {
        args.string("Communicator", &format!("{communicator:016x}"));
    }
    if let Some(rank) = collective.group_rank {
        args.number("Group rank", rank);
    }
    if collective.merged > 0 {
        args.number("Merged collectives", collective.merged);
    }
}

/// Adds the size of a kernel's launch, and how well it fills the device.
fn write_launch(args: &mut Object<'_>, kernel: &Kernel, device: Option<&Device>) {
    let occupancy = device.and_then(|device| device.occupancy(kernel));
    args.number("registers per thread", kernel.registers);
    args.number("shared memory", u64::from(kernel.static_shared_memory) + u64::from(kernel.dynamic_shared_memory));
    if let Some(occupancy) = occupancy {
        args.float("blocks per SM", six_decimals(occupancy.blocks_per_multiprocessor));
        args.float("warps per SM", six_decimals(occupancy.warps_per_multiprocessor));
    }
    args.array("grid", |grid| kernel.grid.iter().for_each(|&blocks| grid.number(blocks)));
    args.array("block", |block| kernel.block.iter().for_each(|&threads| block.number(threads)));
    if let Some(occupancy) = occupancy {
        args.number("est. achieved occupancy %", occupancy.percent.round() as u32);
    }
}

fn six_decimals(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}
