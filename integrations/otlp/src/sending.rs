//! A run that is being sent: what the exporter's halves, the one for windows and the one for steps, share.

use super::{
    attributes::{Attributes, name},
    metrics::Metrics,
    outbox::{Outbox, Request},
    resource::Resource,
    settings::Endpoint,
    span_writer::{self, ATTRIBUTES, Head, Most, SpanWriter},
    spans::{self, Detailing},
    tally::Tally,
    transport::{Signal, Transport},
};
use crate::{
    delivery::Delivery,
    export::{ExportResult, StepExporter, StepSummary},
    trace::{Device, Timestamp, Trace},
};
use std::{
    error::Error,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Why nothing is sent at all.
#[derive(Clone, Debug)]
pub(super) struct Problem(pub(super) String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Problem {}

/// What both halves of the exporter, the one for windows and the one for steps, share.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) traces: Option<Lane>,
    pub(super) metrics: Option<Lane>,
    pub(super) resource: Resource,
    pub(super) detailing: Detailing,
    pub(super) start: Timestamp,
    pub(super) finish_within: Duration,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) metrics: Metrics,
    /// The GPUs, once they are known.
    pub(super) devices: Vec<Device>,
    /// Steps that have ended.
    pub(super) steps: u64,
}

/// The way of one signal.
#[derive(Debug)]
pub(super) struct Lane {
    outbox: Outbox,
    tally: Arc<Tally>,
    most: Most,
}

impl Lane {
    pub(super) fn start(
        signal: Signal,
        endpoint: &Endpoint,
        buffer: usize,
        problems: &[String],
    ) -> Result<Self, Problem> {
        let name = match signal {
            Signal::Traces => "kernspan-traces",
            Signal::Metrics => "kernspan-metrics",
        };
        let transport = Transport::new(signal, endpoint).map_err(Problem)?;
        let tally = Arc::new(Tally::default());
        let outbox = Outbox::start(name, transport, buffer, endpoint.timeout, Arc::clone(&tally));
        let outbox = outbox.map_err(|error| Problem(format!("cannot start the thread {name}: {error}")))?;
        if !problems.is_empty() {
            let problems = problems.join("; ");
            tracing::warn!(problems, "kernspan: passed over in the environment");
            tally.explain(problems);
        }
        Ok(Self { outbox, tally, most: Most::of(endpoint.protocol) })
    }
}

impl Sending {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send_window(&self, trace: &Trace) {
        let resource = {
            let mut state = self.lock();
            state.metrics.add_window(trace);
            if state.devices.is_empty() {
                state.devices = trace.devices().to_vec();
            }
            self.resource.with(&state.devices)
        };
        if let Some(lane) = &self.traces {
            let mut put = |request| lane.outbox.put(request);
            let mut writer = SpanWriter::new(&resource, lane.most, &mut put);
            spans::write(trace, &self.detailing, lane.tally.lost(), &mut writer);
            writer.flush();
        }
    }

    fn send_steps(&self, steps: &[StepSummary], last: bool) {
        let mut state = self.lock();
        for step in steps {
            state.metrics.add_step(step);
            state.steps += u64::from(step.ended);
        }
        let Some(lane) = &self.metrics else { return };
        let tallies = [("traces", self.traces.as_ref().map(|lane| &*lane.tally)), ("metrics", Some(&*lane.tally))];
        if let Some((points, items)) = state.metrics.collect(last, &tallies) {
            let body = span_writer::envelope(&self.resource.with(&state.devices), &points);
            drop(state);
            lane.outbox.put(Request { body, items });
        }
    }

    /// The run itself, as a span, now that it is over.
    fn send_run(&self, failed: bool) {
        let run = &self.detailing.run;
        let Some(lane) = self.traces.as_ref().filter(|_| run.is_sampled()) else { return };
        let (resource, steps) = {
            let state = self.lock();
            (self.resource.with(&state.devices), state.steps)
        };
        let mut put = |request| lane.outbox.put(request);
        let mut writer = SpanWriter::new(&resource, lane.most, &mut put);
        let parent = run.parent.map(|parent| parent.span);
        let end = Timestamp::now();
        let head = Head { trace: run.trace, id: run.span, parent, name: "run", start: self.start, end };
        writer.span(head, |out| {
            let mut attributes = Attributes::new(out, ATTRIBUTES);
            attributes.text(name::SCHEDULE, &self.detailing.schedule).number(name::STEPS, steps);
            if failed {
                span_writer::error(out, "the training panicked");
            }
        });
        writer.flush();
    }

    /// What became of it.
    pub(super) fn deliveries(&self) -> Vec<Delivery> {
        let traces = self.traces.iter().map(|lane| lane.tally.delivery("spans"));
        traces.chain(self.metrics.iter().map(|lane| lane.tally.delivery("points"))).collect()
    }

    pub(super) fn finish(&self) {
        // A clock ends some time; nobody waits for a year.
        let deadline = Instant::now() + self.finish_within.min(Duration::from_secs(365 * 24 * 60 * 60));
        let lanes = || [&self.traces, &self.metrics].into_iter().flatten();
        lanes().for_each(|lane| lane.outbox.close(deadline));
        lanes().for_each(|lane| lane.outbox.wait());
    }
}

/// The half for steps.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) sending: Arc<Sending>,
    pub(super) failed: bool,
}

impl StepExporter for Steps {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.sending.send_steps(steps, false);
        Ok(())
    }

    fn panicked(&mut self) {
        self.failed = true;
    }

    fn finish(&mut self) -> ExportResult {
        self.sending.send_run(self.failed);
        self.sending.send_steps(&[], true);
        self.sending.finish();
        Ok(Vec::new())
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.sending.deliveries()
    }
}

/// Nothing is sent, and that is said.
impl StepExporter for Problem {
    fn steps(&mut self, _: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err(self.clone().into())
    }
}
