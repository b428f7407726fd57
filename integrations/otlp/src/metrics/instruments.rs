//! The table of all metrics, with names, units and kinds from OpenTelemetry's semantic conventions where they define
//! one.

use crate::attributes::name;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The last value.
    Gauge,
    /// A sum that only grows.
    Counter,
    /// A sum that may shrink. It is always cumulative.
    UpDownCounter,
    /// The distribution of values.
    Histogram,
}

/// The description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instrument {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Empty if only the program knows it.
    pub(super) unit: &'static str,
    /// The names of its attributes.
    pub(super) attributes: &'static [&'static str],
    pub(super) description: &'static str,
}

// Names of attributes that only metrics use.
pub(super) const CAUSE: &str = "cause";
pub(super) const COUNTER_NAME: &str = "counter.name";
pub(super) const CPU_MODE: &str = "cpu.mode";
pub(super) const HARDWARE_NAME: &str = "hw.name";
pub(super) const HARDWARE_TYPE: &str = "hw.type";
pub(super) const SIGN: &str = "kernspan.vitals.sign";
pub(super) const SIGNAL: &str = "signal";
/// An attribute of exemplars.
pub(super) const TRACE_FILE: &str = "kernspan.trace.file";

// Names of attributes of requests and service levels.
pub(super) const REQUEST_KIND: &str = "kernspan.request.kind";
pub(super) const TOKEN_TYPE: &str = "gen_ai.token.type";
/// OpenTelemetry's attribute for what a limit of cardinality has put together.
pub(super) const OVERFLOW: &str = "otel.metric.overflow";
pub(super) const OBJECTIVE: &str = "kernspan.slo.objective";
pub(super) const WINDOW: &str = "kernspan.slo.window";
pub(super) const OUTCOME: &str = "kernspan.slo.outcome";
pub(super) const LOOKBACK: &str = "kernspan.slo.lookback";
/// Stands for the fields by which the program breaks requests down.
pub(super) const FIELDS: &str = "*";

/// The attributes of metrics of hardware.
pub(super) const GPU: &[&str] = &[name::HARDWARE, HARDWARE_NAME, HARDWARE_TYPE];

macro_rules! instruments {
    ($($instrument:ident: $name:literal, $kind:ident, $unit:literal, $attributes:expr, $description:literal;)*) => {
        $(
            pub(super) const $instrument: Instrument = Instrument {
                name: $name,
                kind: Kind::$kind,
                unit: $unit,
                attributes: $attributes,
                description: $description,
            };
        )*

        /// All metrics. Tests compare the documentation, and what is sent, with this table.
        #[cfg(test)]
        pub(super) const INSTRUMENTS: &[Instrument] = &[$($instrument),*];
    };
}

instruments! {
    // Every step.
    STEP_DURATION: "kernspan.step.duration", Histogram, "s", &[name::PHASE],
        "Duration of steps, except the first.";
    STEP_NUMBER: "kernspan.step.number", Gauge, "{step}", &[],
        "Number of the last step, counted from 0.";
    STEP_RATE: "kernspan.step.rate", Gauge, "{step}/s", &[],
        "Steps per second since the last collection.";
    THROUGHPUT: "kernspan.throughput", Gauge, "{sample}/s", &[],
        "Samples per second since the last collection.";
    COUNTER: "kernspan.counter", Gauge, "", &[COUNTER_NAME],
        "Last value of a counter of the program.";

    // Recorded windows.
    LAUNCHES: "gpu.cuda.kernel.launch.calls", Counter, "{call}", &[],
        "Calls in recorded windows that launched a kernel.";
    GRAPH_LAUNCHES: "gpu.cuda.graph.launch.calls", Counter, "{call}", &[],
        "Calls in recorded windows that launched a graph.";
    COPIES: "gpu.cuda.memory.copies", Counter, "{copy}", &[name::COPY_KIND],
        "Memory copies in recorded windows.";
    COPIED: "gpu.cuda.memory.copied", Counter, "By", &[name::COPY_KIND],
        "Bytes copied in recorded windows.";
    ALLOCATIONS: "gpu.cuda.memory.allocations", Counter, "{allocation}", &[],
        "Allocations of GPU memory in recorded windows.";
    KERNEL_DURATION: "gpu.kernel.duration", Histogram, "s", &[],
        "Duration of kernels in recorded windows.";
    GPU_BUSY: "kernspan.gpu.busy", Gauge, "1", &[name::HARDWARE],
        "Share of the last recorded step in which the GPU was busy.";
    GPU_PEAK: "kernspan.gpu.memory.peak", Gauge, "By", &[name::HARDWARE],
        "Most GPU memory in use during the last recorded step.";
    GPU_COUNTER_UTILIZATION: "kernspan.gpu.counter.utilization", Gauge, "1", &[name::HARDWARE, COUNTER_NAME],
        "Hardware counters that are shares of a maximum; means over the last recorded step.";
    GPU_COUNTER_THROUGHPUT: "kernspan.gpu.counter.throughput", Gauge, "By/s", &[name::HARDWARE, COUNTER_NAME],
        "Hardware counters of memory and PCIe traffic; means over the last recorded step.";
    GPU_COUNTER_FREQUENCY: "kernspan.gpu.counter.frequency", Gauge, "Hz", &[name::HARDWARE, COUNTER_NAME],
        "Clock of the SMs by hardware counters; mean over the last recorded step.";
    GPU_COUNTER_VALUE: "kernspan.gpu.counter.value", Gauge, "", &[name::HARDWARE, COUNTER_NAME],
        "Hardware counters that the program named, of other units; means over the last recorded step.";

    // Requests, recorded or not.
    REQUEST_DURATION: "kernspan.request.duration", Histogram, "s", &[REQUEST_KIND, FIELDS],
        "Time from the creation of a request's span to its close.";
    REQUEST_RESPONSE: "kernspan.request.response_time", Histogram, "s", &[REQUEST_KIND, FIELDS],
        "Time from the intended start of a request to the close of its span.";
    REQUEST_QUEUE: "kernspan.request.queue_time", Histogram, "s", &[REQUEST_KIND, FIELDS],
        "Time from the intended start of a request to the creation of its span.";
    REQUEST_FIRST_TOKEN: "kernspan.request.time_to_first_token", Histogram, "s", &[REQUEST_KIND, FIELDS],
        "Time from the creation of a request's span to its first token.";
    REQUEST_BETWEEN_TOKENS: "kernspan.request.time_between_tokens", Histogram, "s", &[REQUEST_KIND, FIELDS],
        "Time between two tokens of a request.";
    REQUEST_FAILURES: "kernspan.request.failures", Counter, "{request}", &[REQUEST_KIND, FIELDS],
        "Requests that failed.";
    REQUEST_TOKENS: "kernspan.request.tokens", Counter, "{token}", &[REQUEST_KIND, TOKEN_TYPE, FIELDS],
        "Tokens that requests have read and generated.";
    REQUESTS_IN_FLIGHT: "kernspan.request.in_flight", UpDownCounter, "{request}", &[REQUEST_KIND],
        "Requests whose span is open.";

    // Service levels.
    SLO_REQUESTS: "kernspan.slo.requests", Counter, "{request}", &[REQUEST_KIND, OBJECTIVE, WINDOW, OUTCOME],
        "Requests that an objective is about.";
    SLO_BUDGET: "kernspan.slo.error_budget.remaining", Gauge, "1", &[REQUEST_KIND, OBJECTIVE, WINDOW],
        "Share of the error budget that is left; below 0 if it is overspent.";
    SLO_BURN_RATE: "kernspan.slo.burn_rate", Gauge, "1", &[REQUEST_KIND, OBJECTIVE, WINDOW, LOOKBACK],
        "How fast the error budget was spent; at 1, it lasts as long as the window.";
    SLO_ALERTS: "kernspan.slo.alerts", Counter, "{alert}", &[REQUEST_KIND, OBJECTIVE, WINDOW],
        "Alerts that have begun.";
    SLO_ALERTING: "kernspan.slo.alerts.active", UpDownCounter, "{alert}", &[REQUEST_KIND, OBJECTIVE, WINDOW],
        "Rules for alerts that hold now.";

    // The profiler itself.
    LOST: "kernspan.lost", Counter, "{item}", &[CAUSE],
        "Spans, events and GPU work of recorded windows that were lost.";
    OTLP_SENT: "kernspan.otlp.sent", Counter, "{item}", &[SIGNAL],
        "Spans and points that were sent.";
    OTLP_LOST: "kernspan.otlp.lost", Counter, "{item}", &[SIGNAL, CAUSE],
        "Spans and points that did not arrive.";

    // The process.
    CPU_TIME: "process.cpu.time", Counter, "s", &[CPU_MODE],
        "CPU time of the process.";
    MEMORY: "process.memory.usage", UpDownCounter, "By", &[],
        "Physical memory of the process.";
    THREADS: "process.thread.count", UpDownCounter, "{thread}", &[],
        "Threads of the process.";
    UPTIME: "process.uptime", Gauge, "s", &[],
        "Age of the process.";

    // Vital signs that are not among the metrics of the process and of hardware.
    VITALS_UTILIZATION: "kernspan.vitals.utilization", Gauge, "1", &[SIGN],
        "Vital signs that are shares: of CPUs, memory, time.";
    VITALS_MEMORY: "kernspan.vitals.memory", Gauge, "By", &[SIGN],
        "Vital signs of memory.";
    VITALS_THROUGHPUT: "kernspan.vitals.throughput", Gauge, "By/s", &[SIGN],
        "Vital signs of disks, networks and PCIe.";
    VITALS_TEMPERATURE: "kernspan.vitals.temperature", Gauge, "Cel", &[SIGN],
        "Temperature of the hottest CPU package.";
    VITALS_FREQUENCY: "kernspan.vitals.frequency", Gauge, "Hz", &[SIGN],
        "Clocks of CPUs and GPUs.";
    VITALS_POWER: "kernspan.vitals.power", Gauge, "W", &[SIGN],
        "Power draw of CPU packages, and power limits of GPUs.";
    VITALS_ENERGY: "kernspan.vitals.energy", Counter, "J", &[SIGN],
        "Energy that the CPU packages have used since the start of the run.";
    VITALS_EVENTS: "kernspan.vitals.events", Gauge, "{event}/s", &[SIGN],
        "Vital signs that are events per second.";
    VITALS_VALUE: "kernspan.vitals.value", Gauge, "", &[SIGN],
        "Vital signs that are plain numbers, such as busy CPUs.";

    // The hardware of GPUs that the process may use. Other processes may use them, too.
    HW_UTILIZATION: "hw.gpu.utilization", Gauge, "1", GPU,
        "Share of time with a kernel running; mean since the last collection.";
    HW_MEMORY_UTILIZATION: "hw.gpu.memory.utilization", Gauge, "1", GPU,
        "Share of GPU memory in use.";
    HW_MEMORY_USAGE: "hw.gpu.memory.usage", UpDownCounter, "By", GPU,
        "GPU memory in use.";
    HW_MEMORY_LIMIT: "hw.gpu.memory.limit", UpDownCounter, "By", GPU,
        "Size of GPU memory.";
    HW_TEMPERATURE: "hw.temperature", Gauge, "Cel", GPU,
        "Temperature of the GPU.";
    HW_POWER: "hw.power", Gauge, "W", GPU,
        "Power draw of the GPU; mean since the last collection.";
    HW_ENERGY: "hw.energy", Counter, "J", GPU,
        "Energy that the GPU has used since the start of the run.";
}
