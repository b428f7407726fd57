//! Traces of programs with a GPU, written as what the host does. The GPU's timing follows from that.

use super::{at, callsite, h200, kernel, put_in_order, span, stream, track};
use crate::trace::{
    AllocationData, Api, ApiCallData, ApiCallId, Attribution, CallsiteData, Cut, Detail, DeviceId, Direction, Kernel,
    MemoryChange, MemoryCopy, MemoryKind, SpanId, Step, StepId, StreamId, Trace, TrackId, WorkData,
};
use std::sync::Arc;

/// A program on one thread with one stream, in microseconds.
///
/// Work begins 5 µs after its call, or 1 µs after the work before it. Nothing else takes time, so the duration of a
/// step with and without a fault is known and can be compared with predictions.
#[derive(Debug)]
pub struct GpuTrace {
    trace: Trace,
    /// How far the host and the GPU have come.
    now: u64,
    free: u64,
    open: Vec<usize>,
    /// The bytes of the GPU's memory in use.
    in_use: u64,
}

impl Default for GpuTrace {
    fn default() -> Self {
        let mut trace = Trace { start: at(0), devices: vec![h200()], ..Trace::default() };
        (trace.tracks, trace.streams) = (vec![track(1000, "main")], vec![stream(7, 0)]);
        Self { trace, now: 0, free: 0, open: Vec::new(), in_use: 0 }
    }
}

impl GpuTrace {
    /// The time that a call takes on the host.
    pub const CALL: u64 = 5;

    /// Adds a step with what `body` does.
    pub fn step(&mut self, body: impl FnOnce(&mut Self)) -> &mut Self {
        let (number, start) = (self.trace.steps.len() as u64, at(self.now));
        self.trace.steps.push(Step {
            number: 10 + number,
            track: TrackId::new(0),
            start,
            end: start,
            cut: Cut::default(),
        });
        body(self);
        if let Some(step) = self.trace.steps.last_mut() {
            step.end = at(self.now);
        }
        self
    }

    /// Does something in a span of the user.
    pub fn span(&mut self, name: &'static str, body: impl FnOnce(&mut Self)) -> &mut Self {
        self.span_of("model", name, body)
    }

    /// Does something in a span with a target.
    pub fn span_of(&mut self, target: &'static str, name: &'static str, body: impl FnOnce(&mut Self)) -> &mut Self {
        let callsites = &mut self.trace.callsites;
        let index = callsites.iter().position(|known| known.name == name).unwrap_or_else(|| {
            let line = Some(callsites.len() as u32 + 1);
            callsites.push(CallsiteData { line, target: target.into(), ..callsite(name) });
            callsites.len() - 1
        });
        let start = at(self.now);
        let data = span(index, self.open.last().copied(), self.step_id(), start, start, 0);
        self.open.push(self.trace.spans.len());
        self.trace.spans.push(data);
        body(self);
        if let Some(span) = self.open.pop() {
            self.trace.spans[span].end = at(self.now);
        }
        self
    }

    /// Computes on the host.
    pub fn host(&mut self, micros: u64) -> &mut Self {
        self.now += micros;
        self
    }

    /// Launches a kernel that takes this long on the GPU.
    pub fn launch(&mut self, name: &str, micros: u64) -> &mut Self {
        self.launch_of(name, micros, [1024, 1, 1])
    }

    /// Launches a kernel with a number of blocks.
    pub fn launch_of(&mut self, name: &str, micros: u64, grid: [u32; 3]) -> &mut Self {
        let Detail::Kernel(of_sample) = kernel(name) else { return self };
        self.work("cuLaunchKernel", Detail::Kernel(Kernel { grid, ..of_sample }), micros);
        self.now += Self::CALL;
        self
    }

    /// Copies to the GPU; the host waits for copies from pageable memory.
    pub fn upload(&mut self, from: MemoryKind, bytes: u64, micros: u64) -> &mut Self {
        let copy = MemoryCopy { direction: Direction::HostToDevice, from, to: MemoryKind::Device, bytes };
        self.copy("cuMemcpyHtoDAsync_v2", copy, micros, from == MemoryKind::Pageable)
    }

    /// Copies to the GPU from pageable memory, and waits for it in a separate call, as PyTorch does.
    pub fn upload_and_wait(&mut self, bytes: u64, micros: u64) -> &mut Self {
        let (from, to) = (MemoryKind::Pageable, MemoryKind::Device);
        let copy = MemoryCopy { direction: Direction::HostToDevice, from, to, bytes };
        self.copy("cuMemcpyHtoDAsync_v2", copy, micros, false).synchronize()
    }

    /// Copies to the host, which waits for it.
    pub fn read(&mut self, bytes: u64, micros: u64) -> &mut Self {
        let (from, to) = (MemoryKind::Device, MemoryKind::Pageable);
        let copy = MemoryCopy { direction: Direction::DeviceToHost, from, to, bytes };
        self.copy("cuMemcpyDtoHAsync_v2", copy, micros, true)
    }

    /// Waits until the GPU has done all of its work.
    pub fn synchronize(&mut self) -> &mut Self {
        self.blocking("cuStreamSynchronize", 0)
    }

    /// Has a second thread wait until the GPU has done all of its work, and waits for that thread, as Burn does.
    pub fn synchronize_by_another(&mut self) -> &mut Self {
        if self.trace.tracks.len() == 1 {
            self.trace.tracks.push(track(1001, "waiter"));
        }
        self.host(3).synchronize();
        if let Some(call) = self.trace.api_calls.last_mut() {
            (call.track, call.attribution) = (TrackId::new(1), Attribution::HandedOff);
        }
        self.host(3)
    }

    /// Allocates memory, which waits for the GPU and then takes this long.
    pub fn allocate(&mut self, micros: u64) -> &mut Self {
        self.blocking("cuMemAlloc_v2", micros)
    }

    /// Sets how many bytes of the GPU's memory are in use when the window opens.
    pub fn memory_before(&mut self, bytes: u64) -> &mut Self {
        self.in_use = bytes;
        self
    }

    /// Allocates memory of the GPU from a pool.
    pub fn take(&mut self, address: u64, bytes: u64) -> &mut Self {
        self.in_use += bytes;
        self.change_memory(address, Some(bytes), MemoryChange::Allocate)
    }

    /// Frees what was last allocated at this address.
    pub fn drop(&mut self, address: u64) -> &mut Self {
        let mut changes = self.trace.allocations.iter().rev();
        let bytes = changes.find(|change| change.address == address).and_then(|change| change.bytes);
        self.in_use -= bytes.unwrap_or(0);
        self.change_memory(address, bytes, MemoryChange::Free)
    }

    fn change_memory(&mut self, address: u64, bytes: Option<u64>, change: MemoryChange) -> &mut Self {
        self.now += 1;
        self.trace.allocations.push(AllocationData {
            at: at(self.now),
            context: 1,
            device: DeviceId::new(0),
            address,
            bytes,
            change,
            pooled: true,
            by_framework: false,
            in_use: self.in_use,
            reserved: self.in_use,
            track: TrackId::new(0),
            attribution: Attribution::Direct,
            span: self.open.last().copied().map(SpanId::new),
        });
        self
    }

    /// Loads a kernel, which takes this long.
    pub fn load(&mut self, micros: u64) -> &mut Self {
        self.blocking("cuModuleLoadData", micros)
    }

    /// The mean time of the steps after the first, on the host or on the GPU, whichever took longer.
    pub fn micros_per_step(&self) -> f64 {
        let steps = &self.trace.steps;
        let since = |from: usize| steps[steps.len() - 1].end.since(steps[from].end).as_nanos() as f64 / 1e3;
        let ended = |step: usize| {
            let of_step = self.trace.work.iter().filter(|work| work.step == Some(StepId::new(step)));
            of_step.map(|work| work.end).max().unwrap_or_default()
        };
        let gpu = ended(steps.len() - 1).since(ended(0)).as_nanos() as f64 / 1e3;
        since(0).max(gpu) / (steps.len() - 1) as f64
    }

    /// Returns the trace.
    pub fn trace(&mut self) -> Trace {
        let mut trace = std::mem::take(&mut self.trace);
        trace.end = at(self.now.max(self.free));
        put_in_order(&mut trace);
        trace
    }

    fn step_id(&self) -> StepId {
        StepId::new(self.trace.steps.len().saturating_sub(1))
    }

    fn copy(&mut self, call: &str, copy: MemoryCopy, micros: u64, waits: bool) -> &mut Self {
        self.work(call, Detail::Copy(copy), micros);
        self.now = if waits { self.free + 1 } else { self.now + Self::CALL };
        if let Some(call) = self.trace.api_calls.last_mut() {
            call.end = at(self.now);
        }
        self
    }

    fn blocking(&mut self, name: &str, micros: u64) -> &mut Self {
        let start = self.now;
        self.now = (self.now + 1).max(self.free + 2) + micros;
        self.call(name, start, self.now);
        self
    }

    fn call(&mut self, name: &str, start: u64, end: u64) -> ApiCallId {
        let id = self.trace.api_calls.len();
        self.trace.api_calls.push(ApiCallData {
            api: Api::CudaDriver,
            function: 307,
            name: Arc::from(name),
            track: TrackId::new(0),
            start: at(start),
            end: at(end),
            correlation: id as u32 + 1,
            result: 0,
            attribution: Attribution::Direct,
            span: self.open.last().copied().map(SpanId::new),
            batch: None,
        });
        ApiCallId::new(id)
    }

    /// Requests work: it begins when its call has reached the GPU and the work before it has ended.
    fn work(&mut self, call: &str, detail: Detail, micros: u64) {
        let call = self.call(call, self.now, self.now + Self::CALL);
        let start = (self.now + 5).max(self.free + 1);
        self.free = start + micros;
        self.trace.work.push(WorkData {
            detail,
            stream: StreamId::new(0),
            start: at(start),
            end: at(self.free),
            correlation: call.index() as u32 + 1,
            graph: None,
            call: Some(call),
            attribution: Attribution::Direct,
            span: self.open.last().copied().map(SpanId::new),
            step: Some(self.step_id()),
        });
    }
}
