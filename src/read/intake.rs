//! Sorts the events of a document by their kind.

use super::{
    callsites::{Callsites, Target},
    event::Event,
    gpu::GpuEvents,
    header::Header,
    host::HostEvents,
    raw::Raw,
    rows::Rows,
};
use crate::trace::Timestamp;
use std::borrow::Cow;

/// The part of a document that has been read. Times are nanoseconds since the document's base.
#[derive(Debug, Default)]
pub(super) struct Intake<'a> {
    pub(super) header: Header<'a>,
    pub(super) rows: Rows,
    pub(super) callsites: Callsites<'a>,
    pub(super) host: HostEvents<'a>,
    pub(super) gpu: GpuEvents<'a>,
    /// The extent of torch's window.
    pub(super) extent: Option<(Timestamp, Timestamp)>,
    /// The number of events that were understood.
    pub(super) known: u64,
    /// The number of events of no known kind, or without a time or row that could be read.
    pub(super) unread: u64,
}

impl<'a> Intake<'a> {
    /// Adds a member of the header.
    pub(super) fn add_member(&mut self, key: Cow<'a, str>, value: Raw<'a>) {
        self.header.add(key, value);
    }

    /// Adds an event. One that cannot be understood is counted.
    pub(super) fn add_event(&mut self, event: &Event<'a>) {
        let known = match &*event.phase {
            "X" => self.add_slice(event),
            "i" | "I" => self.add_instant(event),
            "C" => self.host.add_counter(event, Cow::clone(&event.name)).is_some(),
            "s" | "t" | "f" => {
                self.add_arrow(event);
                true
            }
            "M" => self.rows.add_metadata(event),
            // Slices that kernspan draws across threads are made of spans that the document has, too.
            "b" | "e" | "n" => self.header.is_ours(),
            _ => false,
        };
        *(if known { &mut self.known } else { &mut self.unread }) += 1;
    }

    fn add_slice(&mut self, event: &Event<'a>) -> bool {
        let is_ours = self.header.is_ours();
        match &*event.category {
            "cpu_op" => self.add_span(event, Target::Operator),
            "user_annotation" => self.add_annotation(event),
            // kernspan writes spans that are modules as both.
            "python_function" if is_ours => Some(()),
            "python_function" => self.add_span(event, Target::PythonFunction),
            "cuda_runtime" | "cuda_driver" | "runtime" => self.gpu.add_call(event, &mut self.rows),
            "kernel" | "gpu_memcpy" | "gpu_memset" => self.gpu.add_work(event),
            "gpu_user_annotation" if is_ours => Some(()),
            "gpu_user_annotation" => self.gpu.add_annotation(event),
            "cuda_sync" => self.gpu.add_wait(event),
            "overhead" => self.gpu.add_overhead(event),
            "Trace" => {
                self.extent = self.extent.or(event.extent());
                Some(())
            }
            _ => None,
        }
        .is_some()
    }

    fn add_span(&mut self, event: &Event<'a>, target: Target) -> Option<()> {
        let is_ours = self.header.is_ours();
        let name = match event.name.starts_with("ProfilerStep#") {
            true => Cow::Borrowed("ProfilerStep*"),
            false => Cow::clone(&event.name),
        };
        self.host.add_span(event, target, name, is_ours, &mut self.rows, &mut self.callsites)
    }

    /// Adds a step, or a label. Torch's steps are labels, too.
    fn add_annotation(&mut self, event: &Event<'a>) -> Option<()> {
        let number = event.name.rsplit_once('#').and_then(|(kind, number)| {
            let is_step = kind == "ProfilerStep" || (self.header.is_ours() && kind == "step");
            number.parse().ok().filter(|_| is_step)
        });
        if let Some(number) = number {
            self.host.add_step(event, number, &mut self.rows)?;
        }
        match self.header.is_ours() && number.is_some() {
            true => Some(()),
            false => self.add_span(event, Target::Annotation),
        }
    }

    fn add_instant(&mut self, event: &Event<'a>) -> bool {
        let is_sample = event.scope == "p" && !event.arg("value").0.is_empty();
        match &*event.category {
            "operation" => self.host.add_operation(event, &mut self.rows),
            "cpu_instant_event" if event.name == "[memory]" => self.gpu.add_allocation(event, &mut self.rows),
            "cpu_instant_event" if is_sample => match event.name.rsplit_once(" is ") {
                Some((name, _)) => self.host.add_counter(event, Cow::Owned(name.to_owned())),
                None => None,
            },
            // The header has the losses, too.
            "cpu_instant_event" if event.scope == "g" => Some(()),
            "cpu_instant_event" => {
                let is_ours = self.header.is_ours();
                self.host.add_event(event, is_ours, &mut self.rows, &mut self.callsites)
            }
            // Torch marks where its window begins and ends.
            "" if event.scope == "g" => Some(()),
            _ => None,
        }
        .is_some()
    }

    /// Takes the arrows between the enters of a call. All others follow from what the events say themselves.
    fn add_arrow(&mut self, event: &Event<'a>) {
        if event.category == "call"
            && let Some(id) = event.id.u64()
        {
            self.host.add_arrow(id, event.phase == "s");
        }
    }
}
