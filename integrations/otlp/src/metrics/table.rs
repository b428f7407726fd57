//! What is measured. Names, units and kinds are OpenTelemetry's where its conventions have them.

/// How a metric goes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    /// The last value.
    Gauge,
    /// A sum that only grows.
    Counter,
    /// A sum that may shrink, which is always sent as a whole.
    UpDownCounter,
    /// Values by how large they are.
    Histogram,
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Instrument {
    pub(in super::super) name: &'static str,
    pub(in super::super) kind: Kind,
    /// Nothing where only the program knows.
    pub(in super::super) unit: &'static str,
    /// What tells its points from each other.
    pub(in super::super) attributes: &'static [&'static str],
    pub(in super::super) description: &'static str,
}

/// Names of attributes that only metrics have.
pub(super) const CAUSE: &str = "cause";
pub(super) const COUNTER_NAME: &str = "counter.name";
pub(super) const CPU_MODE: &str = "cpu.mode";
pub(super) const HARDWARE_NAME: &str = "hw.name";
pub(super) const HARDWARE_TYPE: &str = "hw.type";
pub(super) const SIGNAL: &str = "signal";

/// What every GPU is told by.
const GPU: &[&str] = &[super::name::HARDWARE, HARDWARE_NAME, HARDWARE_TYPE];

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

        /// All of them: what is sent, and what is documented, is compared with them.
        #[cfg(test)]
        pub(in super::super) const INSTRUMENTS: &[Instrument] = &[$($instrument),*];
    };
}

instruments! {
    // Of every step.
    STEP_DURATION: "kernspan.step.duration", Histogram, "s", &[super::name::PHASE],
        "How long steps took, the first of the run left out.";
    STEP_NUMBER: "kernspan.step.number", Gauge, "{step}", &[],
        "The number of the last step, counted from 0.";
    STEP_RATE: "kernspan.step.rate", Gauge, "{step}/s", &[],
        "Steps per second since the last time that metrics were collected.";
    THROUGHPUT: "kernspan.throughput", Gauge, "{sample}/s", &[],
        "Samples per second since the last time that metrics were collected.";
    COUNTER: "kernspan.counter", Gauge, "", &[COUNTER_NAME],
        "The last value of a counter of the program's.";

    // Of recorded windows.
    LAUNCHES: "gpu.cuda.kernel.launch.calls", Counter, "{call}", &[],
        "Calls that launched a kernel, in recorded windows.";
    GRAPH_LAUNCHES: "gpu.cuda.graph.launch.calls", Counter, "{call}", &[],
        "Calls that launched a graph, in recorded windows.";
    COPIES: "gpu.cuda.memory.copies", Counter, "{copy}", &[super::name::COPY_KIND],
        "Copies of memory, in recorded windows.";
    COPIED: "gpu.cuda.memory.copied", Counter, "By", &[super::name::COPY_KIND],
        "Bytes copied, in recorded windows.";
    ALLOCATIONS: "gpu.cuda.memory.allocations", Counter, "{allocation}", &[],
        "Allocations of GPU memory, in recorded windows, if they are recorded.";
    KERNEL_DURATION: "gpu.kernel.duration", Histogram, "s", &[],
        "How long kernels took, in recorded windows.";
    GPU_BUSY: "kernspan.gpu.busy", Gauge, "1", &[super::name::HARDWARE],
        "The share of the last recorded step in which the GPU was busy.";
    GPU_PEAK: "kernspan.gpu.memory.peak", Gauge, "By", &[super::name::HARDWARE],
        "The most GPU memory in use in the last recorded step, if allocations are recorded.";

    // Of the profiler.
    LOST: "kernspan.lost", Counter, "{item}", &[CAUSE],
        "What was seen in recorded windows but could not be kept.";
    OTLP_SENT: "kernspan.otlp.sent", Counter, "{item}", &[SIGNAL],
        "Spans and points that the collector took.";
    OTLP_LOST: "kernspan.otlp.lost", Counter, "{item}", &[SIGNAL, CAUSE],
        "Spans and points that the collector did not get or take.";

    // Of the process.
    CPU_TIME: "process.cpu.time", Counter, "s", &[CPU_MODE],
        "CPU time of the process.";
    MEMORY: "process.memory.usage", UpDownCounter, "By", &[],
        "Physical memory that the process has in use.";
    THREADS: "process.thread.count", UpDownCounter, "{thread}", &[],
        "Threads of the process.";
    UPTIME: "process.uptime", Gauge, "s", &[],
        "How long the process has been running.";

    // Of GPUs that the process may use, whoever uses them.
    HW_UTILIZATION: "hw.gpu.utilization", Gauge, "1", GPU,
        "The share of time in which a kernel was running on the GPU, the mean since the last time that metrics were collected.";
    HW_MEMORY_UTILIZATION: "hw.gpu.memory.utilization", Gauge, "1", GPU,
        "The share of the GPU's memory that is in use.";
    HW_MEMORY_USAGE: "hw.gpu.memory.usage", UpDownCounter, "By", GPU,
        "GPU memory in use.";
    HW_MEMORY_LIMIT: "hw.gpu.memory.limit", UpDownCounter, "By", GPU,
        "GPU memory that there is.";
    HW_TEMPERATURE: "hw.temperature", Gauge, "Cel", GPU,
        "Temperature of the GPU.";
    HW_POWER: "hw.power", Gauge, "W", GPU,
        "Power that the GPU draws, the mean since the last time that metrics were collected.";
    HW_ENERGY: "hw.energy", Counter, "J", GPU,
        "Energy that the GPU has taken since the run began.";
}
