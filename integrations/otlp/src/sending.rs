//! What is sent of a run, window by window and step by step.

use crate::{
    attributes::{Attributes, name},
    endpoint::{Endpoint, Signal},
    metrics::Metrics,
    request::Request,
    resource::Resource,
    run_trace::RunTrace,
    send_queue::SignalQueue,
    settings::Settings,
    span_writer::{self, ATTRIBUTES, Head, SpanWriter},
    spans::{self, SpanOptions},
};
use kernspan::{
    analysis::Analysis,
    export::{Delivery, ExportResult, Run, StepExporter, StepSummary},
    trace::{Device, Metadata, Timestamp},
};
use std::{
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A run that is being sent.
#[derive(Debug)]
pub(crate) struct Sending {
    traces: Option<SignalQueue>,
    metrics: Option<SignalQueue>,
    resource: Resource,
    spans: SpanOptions,
    start: Timestamp,
    finish_within: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    metrics: Metrics,
    /// The GPUs, once known.
    devices: Vec<Device>,
    /// How many steps have ended.
    steps: u64,
}

impl Sending {
    /// Starts the sending threads.
    pub(crate) fn start(
        settings: &Settings,
        run: RunTrace,
        metadata: &Metadata,
        start: Timestamp,
        schedule: &str,
    ) -> Result<Self, String> {
        if let Some(problem) = &settings.invalid {
            return Err(problem.clone());
        }
        let queue = |signal, endpoint: &Option<Endpoint>| {
            endpoint.as_ref().map(|endpoint| SignalQueue::start(signal, endpoint, settings.buffer_bytes)).transpose()
        };
        let traces = queue(Signal::Traces, &settings.traces)?;
        let metrics = queue(Signal::Metrics, &settings.metrics)?;
        if !settings.ignored.is_empty() {
            let problems = settings.ignored.join("; ");
            tracing::warn!(problems, "kernspan: ignored environment variables");
            [&traces, &metrics].into_iter().flatten().for_each(|queue| queue.tally.explain(problems.clone()));
        }
        Ok(Self {
            traces,
            metrics,
            resource: Resource::new(metadata, settings.service.as_deref(), &settings.resource),
            spans: SpanOptions {
                run: run.clone(),
                schedule: schedule.to_owned(),
                gpu: settings.gpu,
                most_work: settings.kernels_per_trace,
                samples_per_step: settings.samples_per_step,
                text_limit: settings.text_limit,
            },
            start,
            finish_within: settings.finish_within,
            state: Mutex::new(State { metrics: Metrics::new(start, run, settings), devices: Vec::new(), steps: 0 }),
        })
    }

    /// Sends metrics of the run's requests and vital signs, too.
    pub(crate) fn follow(&self, run: Run) {
        self.lock().metrics.follow(run);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a window as traces, and adds it to the metrics.
    pub(crate) fn send_window(&self, window: &Analysis<'_>) {
        let resource = {
            let mut state = self.lock();
            state.metrics.add_window(window);
            if state.devices.is_empty() {
                state.devices = window.devices().to_vec();
            }
            self.resource.with_devices(&state.devices)
        };
        if let Some(queue) = &self.traces {
            let mut add = |request| queue.add(request);
            let mut writer = SpanWriter::new(&resource, queue.limits, &mut add);
            spans::write(window, &self.spans, queue.tally.lost(), &mut writer);
            writer.flush();
        }
    }

    /// Adds steps to the metrics, and sends the metrics if it is time.
    fn send_steps(&self, steps: &[StepSummary], is_last: bool) {
        let mut state = self.lock();
        for step in steps {
            state.metrics.add_step(step);
            state.steps += u64::from(step.ended);
        }
        let Some(queue) = &self.metrics else { return };
        let tallies = [("traces", self.traces.as_ref().map(|queue| &*queue.tally)), ("metrics", Some(&*queue.tally))];
        if let Some((points, items)) = state.metrics.collect(is_last, &tallies) {
            let resource = self.resource.with_devices(&state.devices);
            drop(state);
            queue.add(Request::new(&resource, &points, items));
        }
    }

    /// Sends the span of the run, which is over.
    fn send_run(&self, panicked: bool) {
        let run = &self.spans.run;
        let Some(queue) = self.traces.as_ref().filter(|_| run.is_sampled()) else { return };
        let (resource, steps) = {
            let state = self.lock();
            (self.resource.with_devices(&state.devices), state.steps)
        };
        let mut add = |request| queue.add(request);
        let mut writer = SpanWriter::new(&resource, queue.limits, &mut add);
        let parent = run.parent.map(|parent| parent.span);
        let end = Timestamp::now();
        let head = Head { trace: run.trace, id: run.span, parent, name: "run", start: self.start, end };
        writer.span(head, |out| {
            let mut attributes = Attributes::new(out, ATTRIBUTES);
            attributes.text(name::SCHEDULE, &self.spans.schedule).number(name::STEPS, steps);
            if panicked {
                span_writer::error(out, "the training panicked");
            }
        });
        writer.flush();
    }

    /// The counts of spans and points, for the report.
    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        let traces = self.traces.iter().map(|queue| queue.tally.delivery("spans"));
        traces.chain(self.metrics.iter().map(|queue| queue.tally.delivery("points"))).collect()
    }

    /// Waits until all requests have been sent, or the time to finish has run out.
    pub(crate) fn finish(&self) {
        // A time too large for the clock becomes a year.
        let deadline = Instant::now() + self.finish_within.min(Duration::from_secs(365 * 24 * 60 * 60));
        let queues = || [&self.traces, &self.metrics].into_iter().flatten();
        queues().for_each(|queue| queue.finish_by(deadline));
        queues().for_each(SignalQueue::wait);
    }
}

/// Sends metrics of all steps, and at the end the span of the run.
#[derive(Debug)]
pub(crate) struct StepSender {
    sending: Arc<Sending>,
    panicked: bool,
}

impl StepSender {
    pub(crate) fn new(sending: Arc<Sending>) -> Self {
        Self { sending, panicked: false }
    }
}

impl StepExporter for StepSender {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.sending.send_steps(steps, false);
        Ok(())
    }

    fn panicked(&mut self) {
        self.panicked = true;
    }

    fn finish(&mut self) -> ExportResult {
        self.sending.send_run(self.panicked);
        self.sending.send_steps(&[], true);
        self.sending.finish();
        Ok(Vec::new())
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.sending.deliveries()
    }
}

/// Sends nothing, and fails with the reason: a setting is invalid.
#[derive(Debug)]
pub(crate) struct NotStarted(pub(crate) String);

impl StepExporter for NotStarted {
    fn steps(&mut self, _: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err(self.0.clone().into())
    }
}
