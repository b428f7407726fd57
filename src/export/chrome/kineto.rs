//! The document. What its readers trip over: `traceEvents` is the last array, `"rank": 0` has a space, every range on a row
//! nests, and times are relative to `baseTimeNanoseconds`.

use super::{
    Style,
    flavor::Flavor,
    json::Json,
    micros::Micros,
    rows::{Row, host_pid, tid},
    torch::{Extras, steps_shown},
};
use crate::{
    export::nest::steps_nest,
    trace::{Callsite, Cut, Fields, Timestamp, Trace},
};
use std::io::{self, Write};

/// `baseTimeNanoseconds` is a multiple of this, a day: the ranks of a run agree on it, and times in microseconds are still small
/// enough for readers that add them up in floating point.
const BASE: u64 = 24 * 3600 * 1_000_000_000;

pub(super) fn write(trace: &Trace, style: Style, out: impl Write) -> io::Result<()> {
    let base = trace.start().as_unix_nanos() / BASE * BASE;
    let (pid, nested_steps) = (host_pid(trace), steps_nest(trace));
    Kineto { trace, style, json: Json::new(out), base, pid, nested_steps, first: true }.write()
}

pub(super) struct Kineto<'a, W> {
    pub(super) trace: &'a Trace,
    pub(super) style: Style,
    pub(super) json: Json<W>,
    pub(super) base: u64,
    pub(super) pid: i64,
    /// Whether steps share their threads' rows.
    nested_steps: bool,
    first: bool,
}

impl<W: Write> Kineto<'_, W> {
    fn write(mut self) -> io::Result<()> {
        self.header();
        self.names();
        self.steps();
        self.spans()?;
        self.events()?;
        self.operations()?;
        self.counters()?;
        self.losses();
        self.gpu()?;
        // TensorBoard's plugin cuts the text at its last `]`.
        let name = format!("{}#{}", self.trace.metadata().process.replace(']', ")"), self.trace.window());
        self.json.raw("\n],\"traceName\":").string(&name).raw("}\n");
        self.json.finish()
    }

    /// Begins an event, after the one before.
    pub(super) fn event(&mut self) -> &mut Json<W> {
        if !std::mem::take(&mut self.first) {
            self.json.raw(",\n");
        }
        &mut self.json
    }

    /// When something is.
    pub(super) fn time(&self, at: Timestamp) -> Micros {
        let nanos = self.since_base(at);
        match self.style.flavor {
            Flavor::Kineto => Micros::of(nanos),
            Flavor::TorchTensorBoard => Micros::of_ticks(Micros::ticks(nanos)),
        }
    }

    /// How long something takes. Added to when it starts, it is when it ends, to those who have that from texts only.
    pub(super) fn duration(&self, start: Timestamp, end: Timestamp) -> Micros {
        match self.style.flavor {
            Flavor::Kineto => Micros::of(end.as_unix_nanos().saturating_sub(start.as_unix_nanos())),
            Flavor::TorchTensorBoard => {
                let [start, end] = [start, end].map(|at| Micros::ticks(self.since_base(at)));
                Micros::of_ticks(end.saturating_sub(start))
            }
        }
    }

    fn since_base(&self, at: Timestamp) -> u64 {
        at.as_unix_nanos().saturating_sub(self.base)
    }

    /// Names of the process and its threads, in the order they are to be shown in.
    fn names(&mut self) {
        let metadata = self.trace.metadata();
        self.process(self.pid, &metadata.process, "CPU", metadata.pid.into());
        for (place, track) in self.trace.tracks().iter().enumerate() {
            self.thread(Row { pid: self.pid, tid: tid(track) }, &track.label(), place as i64);
        }
        if !self.nested_steps {
            self.thread(Row { pid: self.pid, tid: STEPS_TID }, "steps", -1);
        }
    }

    pub(super) fn process(&mut self, pid: i64, name: &str, label: &str, sort_index: i64) {
        let row = Row { pid, tid: 0 };
        self.about("process_name", row, "name").string(name).raw("}}");
        self.about("process_labels", row, "labels").string(label).raw("}}");
        self.about("process_sort_index", row, "sort_index").number(sort_index).raw("}}");
    }

    pub(super) fn thread(&mut self, row: Row, name: &str, sort_index: i64) {
        self.about("thread_name", row, "name").string(name).raw("}}");
        self.about("thread_sort_index", row, "sort_index").number(sort_index).raw("}}");
    }

    fn about(&mut self, what: &str, row: Row, key: &str) -> &mut Json<W> {
        let json = self.event();
        json.raw("{\"ph\":\"M\",\"name\":").string(what).raw(",\"pid\":").number(row.pid);
        json.raw(",\"tid\":").number(row.tid).raw(",\"args\":{").string(key).raw(":")
    }

    fn steps(&mut self) {
        let shown = steps_shown(self.trace, self.style.flavor);
        for (step, shown) in self.trace.steps().iter().zip(shown) {
            let tid = if self.nested_steps { tid(&self.trace.tracks()[step.track_id().index()]) } else { STEPS_TID };
            let (start, duration) = (self.time(step.start()), self.duration(step.start(), step.end()));
            let pid = self.pid;
            let json = self.event();
            json.raw("{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"");
            json.raw(if shown { "ProfilerStep#" } else { "step#" }).number(step.number());
            json.raw("\",\"pid\":").number(pid).raw(",\"tid\":").number(tid);
            json.raw(",\"ts\":").raw(start).raw(",\"dur\":").raw(duration).raw(",\"args\":{\"step\":");
            json.number(step.number());
            cut(json, step.cut());
            json.raw("}}");
        }
    }

    fn spans(&mut self) -> io::Result<()> {
        let places: Vec<_> = self.trace.callsites().iter().map(Place::of).collect();
        let tids: Vec<_> = self.trace.tracks().iter().map(tid).collect();
        let pid = self.pid;
        let mut extras = Extras::of(self.trace, self.style.flavor);
        for (index, span) in self.trace.spans().enumerate() {
            if let Some(extras) = &mut extras {
                self.module(span, extras);
            }
            let (start, duration) = (self.time(span.start()), self.duration(span.start(), span.end()));
            let place = &places[span.callsite_id().index()];
            let json = self.event();
            json.raw("{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":");
            match extras.as_ref().and_then(|extras| extras.name(span)) {
                Some(name) => json.string(name),
                None => json.raw(&place.name),
            };
            json.raw(",\"pid\":").number(pid).raw(",\"tid\":").number(tids[span.track_id().index()]);
            json.raw(",\"ts\":").raw(start).raw(",\"dur\":").raw(duration);
            json.raw(",\"args\":{\"External id\":").number(index + 1).raw(&place.location);
            cut(json, span.cut());
            if !span.fields().is_empty() {
                if extras.as_ref().is_none_or(|extras| extras.may_have_inputs(span)) {
                    op_inputs(json, span.fields());
                }
                fields(json, span.fields(), None, &ARGUMENTS);
            }
            let call_stack = extras.as_mut().map(|extras| extras.call_stack(span));
            if !span.backtrace().is_empty() {
                json.raw(",\"Call stack\":").string(&span.backtrace().join(";"));
            } else if let Some(call_stack) = call_stack {
                json.raw(",\"Call stack\":").raw(call_stack);
            }
            json.raw("}}").pass_on()?;
        }
        Ok(())
    }

    fn events(&mut self) -> io::Result<()> {
        let pid = self.pid;
        for event in self.trace.events() {
            let at = self.time(event.at());
            let json = self.event();
            json.raw("{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"cpu_instant_event\",\"name\":").string(event.message());
            json.raw(",\"pid\":").number(pid).raw(",\"tid\":").number(tid(event.track()));
            json.raw(",\"ts\":").raw(at).raw(",\"args\":{\"level\":").string(&event.callsite().level().to_string());
            json.raw(&Place::of(event.callsite()).location);
            fields(json, event.fields(), Some("message"), &ARGUMENTS);
            json.raw("}}").pass_on()?;
        }
        Ok(())
    }

    fn counters(&mut self) -> io::Result<()> {
        let pid = self.pid;
        for counter in self.trace.counters() {
            for &(at, value) in counter.samples() {
                let at = self.time(at);
                let json = self.event();
                if value.is_finite() {
                    json.raw("{\"ph\":\"C\",\"name\":").string(counter.name());
                } else {
                    // No counter track can show it, and it is the sample that matters most.
                    let name = format!("{} is {value}", counter.name());
                    json.raw("{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"cpu_instant_event\",\"name\":").string(&name);
                }
                json.raw(",\"pid\":").number(pid).raw(",\"tid\":0,\"ts\":").raw(at);
                json.raw(",\"args\":{\"value\":").float(value).raw("}}").pass_on()?;
            }
        }
        Ok(())
    }

    /// Losses where a person looks: at the window's start, across all rows.
    fn losses(&mut self) {
        let losses = self.trace.losses();
        if losses.is_empty() {
            return;
        }
        let (at, pid) = (self.time(self.trace.start()), self.pid);
        let json = self.event();
        json.raw("{\"ph\":\"i\",\"s\":\"g\",\"cat\":\"cpu_instant_event\",\"name\":");
        json.string(&format!("kernspan {losses}"));
        json.raw(",\"pid\":").number(pid).raw(",\"tid\":0,\"ts\":").raw(at).raw(",\"args\":{}}");
    }
}

/// The row of steps that do not nest with the spans of their thread: no thread has this id.
const STEPS_TID: i64 = 0;

/// What is the same for all spans of a callsite, as JSON.
struct Place {
    name: Vec<u8>,
    location: Vec<u8>,
}

impl Place {
    fn of(callsite: &Callsite) -> Self {
        let mut name = Json::new(io::sink());
        name.string(callsite.name());
        let mut location = Json::new(io::sink());
        if let Some(text) = callsite.location() {
            location.raw(",\"src\":").string(&text);
        }
        Self { name: name.into_buffer(), location: location.into_buffer() }
    }
}

fn cut<W: Write>(json: &mut Json<W>, cut: Cut) {
    if cut.start {
        json.raw(",\"started\":false");
    }
    if cut.end {
        json.raw(",\"finished\":false");
    }
}

/// Arguments that are ours: a user's field of the same name is called `field.NAME`.
const ARGUMENTS: [&str; 8] =
    ["External id", "src", "started", "finished", "Input Dims", "Input type", "Call stack", "level"];

/// A field each, but for `except`; names that are `taken` are called otherwise.
pub(super) fn fields<W: Write>(json: &mut Json<W>, fields: Fields<'_>, except: Option<&str>, taken: &[&str]) {
    for (name, value) in fields.iter().filter(|(name, _)| Some(*name) != except) {
        json.raw(",");
        match taken.contains(&name) {
            true => json.string(&format!("field.{name}")),
            false => json.string(name),
        };
        json.raw(":").value(value);
    }
}

/// Shapes and element types under the names PyTorch gives them.
pub(super) fn op_inputs<W: Write>(json: &mut Json<W>, fields: Fields<'_>) {
    let op = fields.op();
    let shapes: Vec<_> = op.shapes().filter_map(|(_, shape)| dims(shape)).collect();
    if !shapes.is_empty() {
        json.raw(",\"Input Dims\":[").raw(shapes.join(",")).raw("]");
    }
    let mut dtypes = op.dtypes().map(|(_, dtype)| dtype).peekable();
    if dtypes.peek().is_some() {
        json.raw(",\"Input type\":[");
        for (place, dtype) in dtypes.enumerate() {
            json.raw(if place == 0 { "" } else { "," }).string(dtype);
        }
        json.raw("]");
    }
}

/// `[64, 512]`, if that is what it is, as a JSON array.
fn dims(shape: &str) -> Option<String> {
    let inner = shape.trim().strip_prefix('[')?.strip_suffix(']')?;
    let dims = inner.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    let dims = dims.map(|dim| dim.parse::<u64>().map(|dim| dim.to_string())).collect::<Result<Vec<_>, _>>();
    Some(format!("[{}]", dims.ok()?.join(",")))
}

#[cfg(test)]
mod tests {
    use super::dims;

    #[test]
    fn shapes_are_lists_of_numbers_or_nothing() {
        assert_eq!(dims("[64, 512]").as_deref(), Some("[64,512]"));
        assert_eq!(dims("[]").as_deref(), Some("[]"));
        assert_eq!(dims("(64, 512)"), None);
        assert_eq!(dims("[batch, 512]"), None);
        assert_eq!(dims("[-1]"), None);
    }
}
