//! Windows for tests, written as the JSON that [`kernspan::read`] reads.

use kernspan::Trace;
use serde_json::{Value, json};

/// A window that a test can change before it becomes a trace. All times are microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) number: u32,
    pub(crate) pid: u32,
    pub(crate) host: &'static str,
    pub(crate) gpu: &'static str,
    pub(crate) end: f64,
    pub(crate) events: Vec<Event>,
}

/// A step, a span, an API call, a piece of GPU work, a wait or a change of memory.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    /// The thread or the stream.
    pub(crate) row: u64,
    pub(crate) start: f64,
    pub(crate) end: f64,
    /// The span that it is, or belongs to; 0 if none.
    pub(crate) span: u64,
    /// The caller of a span, if it is not the enclosing one; 0 if none.
    pub(crate) caller: u64,
    /// The floating-point operations that a span states.
    pub(crate) flops: Option<u64>,
    /// The allocations of a span on the heap, and their bytes.
    pub(crate) heap: Option<[u64; 2]>,
    /// The id shared by an API call and its work.
    pub(crate) correlation: u32,
    /// The blocks of a kernel.
    pub(crate) grid: [u32; 3],
    /// The bytes of a copy, a fill, an allocation or, below 0, a free.
    pub(crate) bytes: i64,
    /// The bytes in use after a change of memory.
    pub(crate) in_use: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Step,
    Span,
    Call,
    Kernel,
    Copy,
    Fill,
    Memory,
}

impl Window {
    pub(crate) const MAIN: u64 = 1000;
    pub(crate) const DEVICE: u64 = 1001;
    /// When all windows open.
    const START: u64 = 1_800_000_000_000_000_000;

    /// Returns a window without events.
    pub(crate) fn empty(end: f64) -> Self {
        Self { number: 0, pid: 1000, host: "host", gpu: "NVIDIA H200", end, events: Vec::new() }
    }

    /// Returns two steps of 100 µs on the thread `main`, and a second thread, `device`, which launches on behalf of it.
    ///
    /// The spans are `train_step` (0–90, 100–190), and in it `forward` (10–40, 110–140) and `backward` (40–80,
    /// 140–180). In each step, stream 7 has a copy of 4000 bytes in 4 µs from `train_step`, a kernel `gemm` of 20 µs
    /// from `forward` and one of 30 µs from `backward`. On stream 8, `backward` launches a graph of a kernel and a fill
    /// of 10 µs each, which overlap. `forward` allocates 4096 bytes, and `backward` frees them.
    pub(crate) fn new() -> Self {
        let mut window = Self::empty(200.0);
        for step in 0..2_u32 {
            let (t, span, call) = (100.0 * f64::from(step), 3 * u64::from(step) + 1, 100 * step);
            window.step(t, t + 100.0);
            window.span("train_step", span, t, t + 90.0);
            window.span("forward", span + 1, t + 10.0, t + 40.0);
            window.span("backward", span + 2, t + 40.0, t + 80.0);
            window.call("cuMemcpyHtoDAsync", span, call + 1, t + 2.0, t + 4.0);
            window.call("cuLaunchKernel", span + 1, call + 2, t + 17.0, t + 19.0);
            window.call("cuLaunchKernel", span + 2, call + 3, t + 47.0, t + 49.0);
            window.call("cuGraphLaunch", span + 2, call + 4, t + 57.0, t + 59.0).row = Self::DEVICE;
            window.work(Kind::Copy, "Memcpy HtoD (Pageable -> Device)", span, call + 1, t + 5.0, t + 9.0).bytes = 4000;
            window.work(Kind::Kernel, "gemm", span + 1, call + 2, t + 20.0, t + 40.0);
            window.work(Kind::Kernel, "gemm", span + 2, call + 3, t + 50.0, t + 80.0);
            window.work(Kind::Kernel, "node", span + 2, call + 4, t + 60.0, t + 70.0).row = 8;
            window.work(Kind::Fill, "Memset (Device)", span + 2, call + 4, t + 65.0, t + 75.0).row = 10_000_008;
            window.memory(span + 1, t + 12.0, 4096, 5096);
            window.memory(span + 2, t + 78.0, -4096, 1000);
        }
        window
    }

    pub(crate) fn numbered(number: u32) -> Self {
        Self { number, ..Self::new() }
    }

    fn add(&mut self, kind: Kind, name: &'static str, start: f64, end: f64) -> &mut Event {
        let at = self.events.len();
        self.events.push(Event {
            kind,
            name,
            row: Self::MAIN,
            start,
            end,
            span: 0,
            caller: 0,
            flops: None,
            heap: None,
            correlation: 0,
            grid: [8, 1, 6],
            bytes: 64,
            in_use: 0,
        });
        &mut self.events[at]
    }

    pub(crate) fn step(&mut self, start: f64, end: f64) {
        self.add(Kind::Step, "ProfilerStep", start, end);
    }

    pub(crate) fn span(&mut self, name: &'static str, id: u64, start: f64, end: f64) {
        self.add(Kind::Span, name, start, end).span = id;
    }

    pub(crate) fn call(&mut self, name: &'static str, span: u64, correlation: u32, start: f64, end: f64) -> &mut Event {
        let call = self.add(Kind::Call, name, start, end);
        (call.span, call.correlation) = (span, correlation);
        call
    }

    pub(crate) fn work(
        &mut self,
        kind: Kind,
        name: &'static str,
        span: u64,
        correlation: u32,
        start: f64,
        end: f64,
    ) -> &mut Event {
        let work = self.add(kind, name, start, end);
        (work.row, work.span, work.correlation) = (7, span, correlation);
        work
    }

    fn memory(&mut self, span: u64, at: f64, bytes: i64, in_use: u64) {
        let memory = self.add(Kind::Memory, "[memory]", at, at);
        (memory.span, memory.bytes, memory.in_use) = (span, bytes, in_use);
    }

    /// Returns the events of one kind that belong to spans of this name.
    pub(crate) fn of(&mut self, kind: Kind, name: &str) -> Vec<&mut Event> {
        let is_span = |event: &&Event| event.kind == Kind::Span && event.name == name;
        let spans: Vec<_> = self.events.iter().filter(is_span).map(|event| event.span).collect();
        self.events.iter_mut().filter(|event| event.kind == kind && spans.contains(&event.span)).collect()
    }

    /// Repeats the events of one kind that belong to spans of this name.
    pub(crate) fn repeat(&mut self, kind: Kind, name: &str) {
        let again: Vec<_> = self.of(kind, name).into_iter().map(|event| event.clone()).collect();
        self.events.extend(again);
    }

    /// Multiplies all times.
    pub(crate) fn scale(&mut self, factor: f64) {
        self.end *= factor;
        for event in &mut self.events {
            (event.start, event.end) = (event.start * factor, event.end * factor);
        }
    }

    /// Makes spans of this name longer, and delays everything after them.
    pub(crate) fn slow_down(&mut self, name: &str, micros: f64) {
        let is_slow = |event: &&Event| event.kind == Kind::Span && event.name == name;
        let ends: Vec<f64> = self.events.iter().filter(is_slow).map(|event| event.end).collect();
        for event in &mut self.events {
            // GPU work that ends with the span does not take longer.
            let is_host = matches!(event.kind, Kind::Step | Kind::Span);
            let delay =
                |at: f64| micros * ends.iter().filter(|&&end| end < at || (is_host && end == at)).count() as f64;
            (event.start, event.end) = (event.start + delay(event.start), event.end + delay(event.end));
        }
        self.end += micros * ends.len() as f64;
    }

    /// Returns the trace.
    pub(crate) fn trace(&self) -> Trace {
        let mut steps = 5..;
        let events: Vec<_> = self.events.iter().map(|event| event.json(self.pid, &mut steps)).collect();
        let json = json!({
            "deviceProperties": [{"id": 0, "name": self.gpu, "numSms": 132, "computeMajor": 9, "warpSize": 32}],
            "distributedInfo": {"rank": 0, "world_size": 1},
            "host_name": self.host,
            "process_name": "train",
            "kernspan_version": "0.1.0",
            "kernspan_window": self.number,
            "kernspan_start": Self::START,
            "kernspan_end": Self::START + (1000.0 * self.end) as u64,
            "kernspan_gpu": "GPU recorded by CUPTI 130001 from libcupti.so.13",
            "kernspan_library": {"path": "libcupti.so.13"},
            "baseTimeNanoseconds": Self::START,
            "traceEvents": events,
        });
        kernspan::read::from_bytes(json.to_string().as_bytes()).unwrap().remove(0)
    }
}

impl Event {
    fn json(&self, pid: u32, steps: &mut impl Iterator<Item = u64>) -> Value {
        let is_work = matches!(self.kind, Kind::Kernel | Kind::Copy | Kind::Fill);
        let category = match self.kind {
            Kind::Step => "user_annotation",
            Kind::Span => "cpu_op",
            Kind::Call => "cuda_driver",
            Kind::Kernel => "kernel",
            Kind::Copy => "gpu_memcpy",
            Kind::Fill => "gpu_memset",
            Kind::Memory => "cpu_instant_event",
        };
        let mut args = json!({});
        if self.span != 0 {
            args["External id"] = self.span.into();
        }
        let mut name = self.name.to_owned();
        match self.kind {
            Kind::Step => {
                let number = steps.next();
                name = format!("{name}#{}", number.unwrap_or_default());
                args["step"] = number.into();
            }
            Kind::Span => {
                args["src"] = "src/model.rs:7".into();
                if self.caller != 0 {
                    args["caller"] = self.caller.into();
                }
                if let Some([allocations, bytes]) = self.heap {
                    args["heap"] = json!([allocations, bytes, bytes]);
                }
                if let Some(flops) = self.flops {
                    args["op.flops"] = flops.into();
                }
            }
            Kind::Call => {
                (args["cbid"], args["correlation"]) = (307.into(), self.correlation.into());
            }
            Kind::Memory => {
                (args["Device Type"], args["Device Id"], args["Addr"]) = (1.into(), 0.into(), 4096.into());
                (args["Bytes"], args["Total Allocated"]) = (self.bytes.into(), self.in_use.into());
            }
            Kind::Kernel | Kind::Copy | Kind::Fill => {
                (args["device"], args["context"], args["stream"]) =
                    (0.into(), 1.into(), (self.row % 10_000_000).into());
                args["correlation"] = self.correlation.into();
                match self.kind {
                    Kind::Kernel => (args["grid"], args["block"]) = (json!(self.grid), json!([128, 1, 1])),
                    _ => args["bytes"] = self.bytes.into(),
                }
            }
        }
        let is_instant = self.kind == Kind::Memory;
        json!({
            "ph": if is_instant { "i" } else { "X" },
            "cat": category,
            "name": name,
            "pid": if is_work { 0 } else { pid },
            "tid": self.row,
            "ts": self.start,
            "dur": self.end - self.start,
            "args": args,
        })
    }
}
