//! What GPUs did, and what on the host caused it.

use super::{
    Style,
    flavor::Flavor,
    json::Json,
    kineto::Kineto,
    micros::Micros,
    rows::{NOBODY, Row, Rows, tid},
    runtime_names::runtime_name,
    torch::{Collectives, is_op_on_gpu},
};
use crate::{
    export::{
        batch_text::BatchText,
        flows::Flows,
        ranges::{Cause, GpuRange, gpu_ranges},
        shape::Shape,
    },
    trace::{Api, ApiCall, Attribution, Detail, Device, Kernel, Span, WaitKind, Work},
};
use rustc_hash::FxHashMap;
use std::io::{self, Write};

/// Where Kineto's sort indices of GPUs begin.
const SORT_INDEX: i64 = 5_000_000;

impl<W: Write> Kineto<'_, W> {
    pub(super) fn gpu(&mut self) -> io::Result<()> {
        let ranges = gpu_ranges(self.trace);
        let rows = Rows::new(self.trace, &ranges);
        self.gpu_names(&rows);
        let flows = Flows::new(self.trace);
        let collectives = Collectives::of(self.trace, &flows, self.style.flavor);
        self.calls(&flows, &collectives)?;
        // What encloses work comes before it, so that of what begins together the outer is the first.
        self.ranges(&ranges, &rows)?;
        self.work(&rows, &flows, &collectives)?;
        self.waits(&rows)?;
        self.allocations()?;
        self.overheads(&rows)
    }

    /// The `cpu_op` of a span. What belongs to none says 0 to TensorBoard's plugin, which otherwise gives it to the first step or module.
    fn external_id(&self, span: Option<Span<'_>>) -> Option<usize> {
        let nobody = (self.style.flavor == Flavor::TorchTensorBoard).then_some(0);
        span.map(|span| span.id().index() + 1).or(nobody)
    }

    fn gpu_names(&mut self, rows: &Rows) {
        let process = &self.trace.metadata().process;
        let mut last = None;
        for (place, (row, name)) in rows.names().into_iter().enumerate() {
            if row.pid != NOBODY && last.replace(row.pid) != Some(row.pid) {
                self.process(row.pid, process, &format!("GPU {}", row.pid), SORT_INDEX + row.pid);
            }
            self.thread(row, name, place as i64);
        }
    }

    fn calls(&mut self, flows: &Flows, collectives: &Collectives) -> io::Result<()> {
        let tids: Vec<_> = self.trace.tracks().iter().map(tid).collect();
        let mut texts: FxHashMap<_, CallText> = FxHashMap::default();
        for call in self.trace.api_calls() {
            // Equal places are equal names.
            let function = (call.name().as_ptr().addr(), call.function(), call.track_id().index(), call.api());
            let text = texts.entry(function).or_insert_with(|| {
                CallText::of(call, self.style, Row { pid: self.pid, tid: tids[call.track_id().index()] })
            });
            self.collective(call, collectives);
            let owner = collectives.id(Some(call.id())).or(self.external_id(call.span()));
            let start = self.time(call.start());
            let duration = self.duration(call.start(), call.end());
            let mut correlation = itoa::Buffer::new();
            let correlation = correlation.format(call.correlation());
            let json = self.event();
            json.raw(&text.head).raw(start).raw(",\"dur\":").raw(duration).raw(",\"args\":{");
            external_id(json, owner);
            json.raw(&text.args).raw(correlation);
            if call.result() != 0 {
                json.raw(",\"result\":").number(call.result());
            }
            json.raw("}}");
            if !flows.of(call.id()).is_empty() {
                json.raw(",\n{\"ph\":\"s\",\"id\":").raw(correlation).raw(&text.row).raw(start);
                json.raw(",\"cat\":\"ac2g\",\"name\":\"ac2g\"}");
            }
            json.pass_on()?;
        }
        Ok(())
    }

    fn ranges(&mut self, ranges: &[GpuRange], rows: &Rows) -> io::Result<()> {
        for range in ranges {
            if self.style.flavor == Flavor::TorchTensorBoard && is_op_on_gpu(self.trace, range.cause) {
                continue;
            }
            let start = self.time(range.start);
            let duration = self.duration(range.start, range.end);
            let trace = self.trace;
            let json = self.event();
            json.raw("{\"ph\":\"X\",\"cat\":\"gpu_user_annotation\",\"name\":");
            match range.cause {
                Cause::Step(step) => json.raw("\"ProfilerStep#").number(trace.steps()[step.index()].number()).raw("\""),
                Cause::Span(span) => json.string(trace.span(span).name()),
            };
            at(json, rows.range(range), start);
            json.raw(",\"dur\":").raw(duration).raw(",\"args\":{");
            match range.cause {
                Cause::Step(step) => json.raw("\"step\":").number(trace.steps()[step.index()].number()),
                Cause::Span(span) => json.raw("\"External id\":").number(span.index() + 1),
            };
            json.raw("}}").pass_on()?;
        }
        Ok(())
    }

    fn work(&mut self, rows: &Rows, flows: &Flows, collectives: &Collectives) -> io::Result<()> {
        let mut texts: FxHashMap<_, WorkText> = FxHashMap::default();
        let mut batch = BatchText::default();
        for work in self.trace.work() {
            let shape = (work.stream_id(), Shape::of(work));
            if texts.len() >= Shape::KEPT && !texts.contains_key(&shape) {
                texts.clear();
            }
            let text = texts.entry(shape).or_insert_with(|| {
                let device = self.trace.device(work.stream().device());
                WorkText::of(work, device, rows.streams[work.stream_id().index()])
            });
            let start = self.time(work.start());
            let duration = self.duration(work.start(), work.end());
            let owner = collectives.id(work.call().map(ApiCall::id)).or(self.external_id(work.span()));
            let queued = work.kernel().and_then(|kernel| kernel.queued).map(|queued| self.time(queued));
            let mut correlation = itoa::Buffer::new();
            let correlation = correlation.format(work.correlation());
            let json = self.event();
            json.raw(&text.head).raw(start).raw(",\"dur\":").raw(duration);
            json.raw(",\"args\":{");
            external_id(json, owner);
            if let Some(queued) = queued {
                json.raw("\"queued\":").raw(queued).raw(",");
            } else if work.kernel().is_some() {
                json.raw("\"queued\":0,");
            }
            json.raw(&text.stream).raw(correlation).raw(&text.launch);
            json.raw(std::mem::take(&mut text.raw_name));
            details(json, work);
            if let Some((operations, spans)) = batch.of(work) {
                json.raw(",\"ops\":").string(operations);
                if let Some(spans) = spans {
                    json.raw(",\"spans\":").string(spans);
                }
            }
            json.raw("}}");
            if flows.lead_to(work.id()) {
                json.raw(",\n{\"ph\":\"f\",\"id\":").raw(correlation).raw(&text.row).raw(start);
                json.raw(",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"bp\":\"e\"}");
            }
            json.pass_on()?;
        }
        Ok(())
    }

    fn waits(&mut self, rows: &Rows) -> io::Result<()> {
        for (wait, row) in self.trace.waits().zip(&rows.waits) {
            let start = self.time(wait.start());
            let duration = self.duration(wait.start(), wait.end());
            let kind = wait.kind().as_str();
            let owner = self.external_id(wait.span());
            let json = self.event();
            json.raw("{\"ph\":\"X\",\"cat\":\"cuda_sync\",\"name\":").string(kind);
            at(json, *row, start);
            json.raw(",\"dur\":").raw(duration).raw(",\"args\":{");
            external_id(json, owner);
            json.raw("\"cuda_sync_kind\":").string(kind);
            if matches!(wait.kind(), WaitKind::Event | WaitKind::StreamForEvent) {
                // Where the event was recorded is not known, which is -1.
                json.raw(",\"wait_on_stream\":-1,\"wait_on_cuda_event_record_corr_id\":-1");
                json.raw(",\"wait_on_cuda_event_id\":").number(wait.event().map_or(-1, i64::from));
            }
            json.raw(",\"stream\":").number(wait.stream().map_or(-1, i64::from));
            json.raw(",\"correlation\":").number(wait.correlation());
            json.raw(",\"device\":").number(row.pid);
            json.raw(",\"context\":").number(wait.context()).raw("}}").pass_on()?;
        }
        Ok(())
    }

    fn allocations(&mut self) -> io::Result<()> {
        for (place, allocation) in self.trace.allocations().enumerate() {
            let row = Row { pid: self.pid, tid: tid(allocation.track()) };
            let when = self.time(allocation.at());
            let owner = self.external_id(allocation.span());
            let json = self.event();
            at(json.raw("{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"cpu_instant_event\",\"name\":\"[memory]\""), row, when);
            json.raw(",\"args\":{");
            external_id(json, owner);
            // Device type 1 is CUDA. What a pool has reserved is not known, but is no less than what is in use.
            json.raw("\"Device Type\":1,\"Device Id\":").number(allocation.device().as_u32());
            json.raw(",\"Addr\":").number(allocation.address()).raw(",\"Bytes\":").number(allocation.delta());
            if allocation.bytes().is_none() {
                json.raw(",\"Bytes unknown\":true");
            }
            json.raw(",\"Total Allocated\":").number(allocation.in_use());
            json.raw(",\"Total Reserved\":").number(allocation.reserved());
            json.raw(",\"Ev Idx\":").number(place).raw("}}").pass_on()?;
        }
        Ok(())
    }

    fn overheads(&mut self, rows: &Rows) -> io::Result<()> {
        for (overhead, row) in self.trace.overheads().iter().zip(&rows.overheads) {
            let start = self.time(overhead.start());
            let duration = self.duration(overhead.start(), overhead.end());
            let json = self.event();
            at(json.raw("{\"ph\":\"X\",\"cat\":\"overhead\",\"name\":").string(overhead.name()), *row, start);
            json.raw(",\"dur\":").raw(duration).raw(",\"args\":{");
            if let Some(thread) = overhead.thread() {
                json.raw("\"thread\":").number(thread.as_u64());
            }
            json.raw("}}").pass_on()?;
        }
        Ok(())
    }
}

/// Where and when an event is.
fn at<W: Write>(json: &mut Json<W>, row: Row, start: Micros) {
    json.raw(",\"pid\":").number(row.pid).raw(",\"tid\":").number(row.tid).raw(",\"ts\":").raw(start);
}

/// What joins a thing to its span's `cpu_op`. More arguments come after it.
fn external_id<W: Write>(json: &mut Json<W>, id: Option<usize>) {
    if let Some(id) = id {
        json.raw("\"External id\":").number(id).raw(",");
    }
}

/// What each piece of work has of its own.
fn details<W: Write>(json: &mut Json<W>, work: Work<'_>) {
    if work.kernel().is_none() {
        json.raw(",\"bytes\":").number(work.bytes());
        if let Some(rate) = work.bytes_per_second() {
            json.raw(",\"memory bandwidth (GB/s)\":").float(rate / 1e9);
        }
    }
    if let Some(node) = work.graph() {
        json.raw(",\"graph id\":").number(node.graph).raw(",\"graph node id\":").number(node.node);
    }
    if work.attribution() != Attribution::Direct {
        json.raw(",\"attribution\":").string(work.attribution().as_str());
    }
}

/// What is the same for all calls of a function on a track, as JSON.
struct CallText {
    /// Up to the time.
    head: Vec<u8>,
    row: Vec<u8>,
    args: Vec<u8>,
}

impl CallText {
    fn of(call: ApiCall<'_>, style: Style, row: Row) -> Self {
        let row = row_text(row);
        let is_driver = call.api() == Api::CudaDriver;
        let runtime_name = if style.runtime_names && is_driver { runtime_name(call.name()) } else { None };
        let category = match style.flavor {
            Flavor::TorchTensorBoard => "runtime",
            Flavor::Kineto if is_driver && runtime_name.is_none() => "cuda_driver",
            Flavor::Kineto => "cuda_runtime",
        };
        let [mut head, mut args] = std::array::from_fn(|_| Json::new(io::sink()));
        head.raw("{\"ph\":\"X\",\"cat\":").string(category);
        head.raw(",\"name\":").string(runtime_name.unwrap_or(call.name())).raw(&row);
        if runtime_name.is_some() {
            args.raw("\"driver name\":").string(call.name()).raw(",");
        }
        args.raw("\"cbid\":").number(call.function()).raw(",\"correlation\":");
        Self { head: head.into_buffer(), row, args: args.into_buffer() }
    }
}

/// What is the same for all work of a shape on a row, as JSON.
struct WorkText {
    /// Up to the time.
    head: Vec<u8>,
    row: Vec<u8>,
    stream: Vec<u8>,
    launch: Vec<u8>,
    /// Names of templates are long, and no reader asks for the raw ones: the first of a shape says it for all.
    raw_name: Vec<u8>,
}

impl WorkText {
    fn of(work: Work<'_>, device: Option<&Device>, row: Row) -> Self {
        let row = row_text(row);
        let category = match work.detail() {
            Detail::Kernel(_) => "kernel",
            Detail::Copy(_) => "gpu_memcpy",
            Detail::Fill(_) => "gpu_memset",
        };
        let [mut head, mut args, mut shape, mut raw_name] = std::array::from_fn(|_| Json::new(io::sink()));
        head.raw("{\"ph\":\"X\",\"cat\":")
            .string(category)
            .raw(",\"name\":")
            .string(&work.name().to_string())
            .raw(&row);
        let stream = work.stream();
        args.raw("\"device\":").number(stream.device().as_u32()).raw(",\"context\":").number(stream.context());
        args.raw(",\"stream\":").number(stream.number()).raw(",\"correlation\":");
        if let Some(kernel) = work.kernel() {
            launch(&mut shape, kernel, device);
            if kernel.raw_name != kernel.name {
                raw_name.raw(",\"raw name\":").string(&kernel.raw_name);
            }
        }
        let [head, stream, launch, raw_name] = [head, args, shape, raw_name].map(Json::into_buffer);
        Self { head, row, stream, launch, raw_name }
    }
}

/// From a row's numbers up to the time.
fn row_text(row: Row) -> Vec<u8> {
    let mut text = Json::new(io::sink());
    text.raw(",\"pid\":").number(row.pid).raw(",\"tid\":").number(row.tid).raw(",\"ts\":");
    text.into_buffer()
}

/// The size of a kernel's launch, and how well that fills the device.
fn launch<W: Write>(json: &mut Json<W>, kernel: &Kernel, device: Option<&Device>) {
    let shared = u64::from(kernel.static_shared_memory) + u64::from(kernel.dynamic_shared_memory);
    json.raw(",\"registers per thread\":").number(kernel.registers).raw(",\"shared memory\":").number(shared);
    let occupancy = device.and_then(|device| device.occupancy(kernel));
    if let Some(occupancy) = occupancy {
        json.raw(",\"blocks per SM\":").float(six_decimals(occupancy.blocks_per_multiprocessor));
        json.raw(",\"warps per SM\":").float(six_decimals(occupancy.warps_per_multiprocessor));
    }
    for (name, [x, y, z]) in [("grid", kernel.grid), ("block", kernel.block)] {
        json.raw(",").string(name).raw(":[").number(x).raw(",").number(y).raw(",").number(z).raw("]");
    }
    if let Some(occupancy) = occupancy {
        json.raw(",\"est. achieved occupancy %\":").number(occupancy.percent.round() as u32);
    }
}

fn six_decimals(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}
