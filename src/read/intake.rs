//! Reads the JSON document: members of its header, and its events, which are sorted by their kind one by one.

use super::{
    ReadError,
    callsites::{Callsites, Target},
    event::Event,
    gpu::GpuEvents,
    header::Header,
    host::HostEvents,
    rows::{Rows, row_id},
    scanner::{Scanner, Wrong},
    shapes::Shapes,
    text::Text,
};
use crate::trace::{Mark, Timestamp};

/// The part of a document read so far. Times are nanoseconds since the document's base.
#[derive(Debug, Default)]
pub(super) struct Intake {
    pub(super) header: Header,
    pub(super) rows: Rows,
    pub(super) callsites: Callsites,
    pub(super) host: HostEvents,
    pub(super) gpu: GpuEvents,
    /// The marks of torch's window.
    pub(super) marks: Vec<Mark>,
    /// The number of events that were understood.
    pub(super) known: u64,
    /// The number of events of unknown kind, or without a readable time or row.
    pub(super) unread: u64,
    /// Whether to stop once the header and an event of the program are known: see [`origin`](super::origin).
    pub(super) only_origin: bool,
}

impl Intake {
    /// Adds an event. One that is not understood is counted.
    pub(super) fn add_event(&mut self, event: &Event<'_>) {
        let known = match &*event.phase {
            "X" => self.add_slice(event),
            "i" | "I" => self.add_instant(event),
            // The header has their exact times.
            "C" if self.header.is_ours() && event.category == "gpu_counter" => true,
            "C" => self.host.add_counter(event, &event.name).is_some(),
            "s" | "t" | "f" => {
                self.add_arrow(event);
                true
            }
            "M" => {
                let is_torch = self.header.is_torch();
                self.rows.add_metadata(event, is_torch)
            }
            // Slices that kernspan draws across threads consist of spans that the document also contains.
            "b" | "e" | "n" => self.header.is_ours(),
            _ => false,
        };
        *(if known { &mut self.known } else { &mut self.unread }) += 1;
    }

    fn add_slice(&mut self, event: &Event<'_>) -> bool {
        let is_torch = self.header.is_torch();
        match &*event.category {
            "cpu_op" => self.add_span(event, Target::Operator),
            "user_annotation" => self.add_annotation(event),
            "python_function" if is_torch => self.add_span(event, Target::PythonFunction),
            // kernspan writes spans that are modules as both.
            "python_function" => Some(()),
            "cuda_runtime" | "cuda_driver" | "runtime" => self.gpu.add_call(event, &mut self.rows),
            "kernel" | "gpu_memcpy" | "gpu_memset" => self.gpu.add_work(event),
            "gpu_user_annotation" if is_torch => self.gpu.add_annotation(event),
            // kernspan derives them from spans.
            "gpu_user_annotation" => Some(()),
            "cuda_sync" => self.gpu.add_wait(event),
            "overhead" => self.gpu.add_overhead(event),
            "Trace" => event.extent().and_then(|(start, end)| self.add_mark(event, start, Some(end))),
            _ => None,
        }
        .is_some()
    }

    /// Adds a mark of torch's window.
    fn add_mark(&mut self, event: &Event<'_>, start: Timestamp, end: Option<Timestamp>) -> Option<()> {
        let (process, thread) = (row_id(event.pid), row_id(event.tid));
        self.marks.push(Mark { name: event.name.clone().into_owned(), process, thread, start, end });
        Some(())
    }

    fn add_span(&mut self, event: &Event<'_>, target: Target) -> Option<()> {
        let name = if event.name.starts_with("ProfilerStep#") { "ProfilerStep*" } else { &event.name };
        self.host.add_span(event, target, name, &self.header, &mut self.rows, &mut self.callsites)
    }

    /// Adds a step or a label. Torch's steps are also labels.
    fn add_annotation(&mut self, event: &Event<'_>) -> Option<()> {
        let number = event.name.rsplit_once('#').and_then(|(kind, number)| {
            let is_step = kind == "ProfilerStep" || (self.header.is_ours() && kind == "step");
            number.parse().ok().filter(|_| is_step)
        });
        if let Some(number) = number {
            self.host.add_step(event, number, &self.header, &mut self.rows)?;
        }
        match self.header.is_torch() || number.is_none() {
            true => self.add_span(event, Target::Annotation),
            false => Some(()),
        }
    }

    fn add_instant(&mut self, event: &Event<'_>) -> bool {
        let is_sample = event.scope == "p" && !event.arg("value").0.is_empty();
        match &*event.category {
            "operation" => self.host.add_operation(event, &mut self.rows),
            "cpu_instant_event" if event.name == "[memory]" => self.gpu.add_allocation(event, &mut self.rows),
            "cpu_instant_event" if is_sample => match event.name.rsplit_once(" is ") {
                Some((name, _)) => self.host.add_counter(event, name),
                None => None,
            },
            // The header also contains the losses.
            "cpu_instant_event" if event.scope == "g" => Some(()),
            "cpu_instant_event" => self.host.add_event(event, &self.header, &mut self.rows, &mut self.callsites),
            // Torch marks where its window begins and ends.
            "" if event.scope == "g" => event.start().and_then(|at| self.add_mark(event, at, None)),
            _ => None,
        }
        .is_some()
    }

    /// Takes the arrows between the enters of a call, and from forward to backward operators. All others follow from
    /// the events themselves.
    fn add_arrow(&mut self, event: &Event<'_>) {
        let begins = event.phase == "s";
        match (&*event.category, event.id.u64()) {
            ("call", Some(id)) => self.host.add_arrow(id, begins),
            ("fwdbwd", _) => self.host.add_link(event, begins, &mut self.rows),
            _ => self.gpu.arrow_ends += 1,
        }
    }
}

impl Intake {
    /// Reads a document: an object with a list of events, or such a list.
    pub(super) fn read(&mut self, text: &mut Text<'_>) -> Result<(), ReadError> {
        if text.part(|scanner| Ok(scanner.peek()))? == b'[' {
            self.read_events(text)?;
            return if self.only_origin { Ok(()) } else { text.end() };
        }
        let mut has_events = false;
        text.part(|scanner| scanner.expect(b'{', "expected an object"))?;
        let mut goes_on = !text.part(|scanner| Ok(scanner.take(b'}')))?;
        while goes_on {
            let key = text.part(|scanner| Ok(scanner.key()?.into_owned()))?;
            match key == "traceEvents" {
                true => {
                    has_events = true;
                    self.read_events(text)?;
                    if self.only_origin {
                        return Ok(());
                    }
                }
                false => {
                    let value = text.part(|scanner| Ok(scanner.value()?.0.to_owned()))?;
                    self.header.add(key, value);
                }
            }
            goes_on = text.part(|scanner| scanner.goes_on(b'}'))?;
        }
        text.end()?;
        if has_events { Ok(()) } else { Err(text.error(Wrong::Missing("traceEvents"), 0)) }
    }

    /// Whether enough was read to say where a document comes from, if nothing else is wanted. PyTorch numbers steps,
    /// not windows, and the first step may come after thousands of operators.
    fn knows_origin(&self) -> bool {
        /// Some 5 MB: the first step of the traces in `tests/fixtures/ranks` is their 4,032nd event.
        const ENOUGH_EVENTS: u64 = 20_000;
        let has_step = self.header.is_ours() || !self.host.steps.is_empty();
        let has_enough = has_step || self.known + self.unread > ENOUGH_EVENTS;
        self.only_origin && has_enough && self.rows.first_process().is_some()
    }

    fn read_events(&mut self, text: &mut Text<'_>) -> Result<(), ReadError> {
        text.part(|scanner| scanner.expect(b'[', "expected a list"))?;
        if text.part(|scanner| Ok(scanner.take(b']')))? {
            return Ok(());
        }
        let mut shapes = Shapes::default();
        let mut is_first = true;
        loop {
            // All events that are entirely in memory, each with the comma before it.
            let mut scanner = text.scanner();
            let mut event = Event::default();
            let mut scanned = 0;
            let end = loop {
                match self.read_event(&mut scanner, &mut event, &mut shapes, is_first) {
                    Ok(true) => (scanned, is_first) = (scanner.position(), false),
                    end => break end,
                }
            };
            let (at, is_at_end) = (scanner.position() - scanned, scanner.is_at_end());
            text.advance(scanned);
            match end {
                Ok(_) => {
                    text.advance(at);
                    return Ok(());
                }
                Err(_) if self.knows_origin() => return Ok(()),
                Err(wrong) if !is_at_end || !text.more()? => return Err(text.error(wrong, at)),
                Err(_) => {}
            }
        }
    }

    /// Reads an event, and the comma before it, replacing another. Returns whether there was one.
    #[inline]
    fn read_event<'t>(
        &mut self,
        scanner: &mut Scanner<'t>,
        event: &mut Event<'t>,
        shapes: &mut Shapes,
        is_first: bool,
    ) -> Result<bool, Wrong> {
        if !is_first && !scanner.goes_on(b']')? {
            return Ok(false);
        }
        shapes.read(scanner, event)?;
        self.add_event(event);
        Ok(true)
    }
}
