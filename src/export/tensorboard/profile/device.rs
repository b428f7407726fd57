//! The planes of GPUs: a line for each stream, and one for the steps.

use super::{
    ops::{OpId, Ops},
    plane::{EventNameId, Line, Plane, StatValue, TextId},
    program::{InstructionId, Program},
    shares::{Share, Shares},
    stat::Stat,
    steps::Steps,
};
use crate::{
    export::{
        index_ranges::index_ranges,
        work_text::{Cache, WorkKey},
    },
    trace::{
        BatchId, Detail, Device, DeviceId, Direction, Kernel, MemoryKind, Span, SpanId, Stream, StreamId, Trace, Work,
    },
};
use rustc_hash::FxHashMap;
use std::{
    collections::HashSet,
    io::{self, Write},
};

/// Writes the planes of all GPUs.
pub(super) struct Devices<'a, 'b> {
    pub(super) trace: &'a Trace,
    pub(super) steps: &'b Steps,
    pub(super) ops: &'b mut Ops<'a>,
    pub(super) shares: Shares,
    pub(super) program: &'b mut Program,
}

impl<'a> Devices<'a, '_> {
    pub(super) fn write(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let trace = self.trace;
        let of_streams = index_ranges(trace.streams().len(), trace.work().map(|work| work.stream_id().index()));
        for device in DeviceId::distinct(trace.streams().iter().map(Stream::device)) {
            let plane = Plane::new(trace, device.as_u32().into(), format!("/device:GPU:{device}"));
            let mut writer = DeviceWriter {
                device: trace.device(device),
                plane,
                several_contexts: trace.has_several_contexts(device),
                lines: HashSet::new(),
                kernels: Cache::default(),
                ops: FxHashMap::default(),
                half: (None, false),
                instructions: FxHashMap::default(),
            };
            let streams = trace.streams().iter().enumerate().filter(|(_, stream)| stream.device() == device);
            for (index, stream) in streams {
                let on_row = |work: &Work<'a>| work.stream_id() == StreamId::new(index);
                writer.stream(self, stream, trace.work_at(of_streams[index].clone()).filter(on_row));
            }
            writer.steps(self);
            writer.capabilities();
            writer.plane.write(out)?;
        }
        Ok(())
    }
}

/// Writes the plane of one GPU.
struct DeviceWriter<'a> {
    device: Option<&'a Device>,
    plane: Plane,
    several_contexts: bool,
    /// The line numbers in use.
    lines: HashSet<u64>,
    kernels: Cache<WorkKey, WorkText>,
    ops: FxHashMap<OpId, TextId>,
    /// The cause of the last piece of work, and whether it computes with 16 bits. The next one usually has the same
    /// cause.
    half: (Option<WorkCause>, bool),
    instructions: FxHashMap<usize, TextId>,
}

/// The cause of a piece of work: its span and its batch.
type WorkCause = (Option<SpanId>, Option<BatchId>);

/// The texts shared by all work with the same key.
#[derive(Clone, Copy)]
struct WorkText {
    name: EventNameId,
    details: Option<TextId>,
    /// Whether the name shows that the kernel computes with 16 bits.
    half: bool,
}

impl<'a> DeviceWriter<'a> {
    fn stream(&mut self, all: &mut Devices<'a, '_>, stream: &Stream, work: impl Iterator<Item = Work<'a>>) {
        let module = self.plane.text(&all.program.name);
        let half = self.plane.text("(half)");
        let mut line = self.plane.line();
        let mut activities = Vec::new();
        for work in work {
            let activity = activity(work);
            if !activities.contains(&activity) {
                activities.push(activity);
            }
            self.work(all, &mut line, work, module, half);
        }
        activities.sort_unstable();
        let mut name = format!("Stream #{}({})", stream.number(), activities.join(","));
        if self.several_contexts {
            name += &format!(" context {}", stream.context());
        }
        if stream.overlap() > 0 {
            name += &format!(" overlap {}", stream.overlap());
        }
        let id = self.line_id(u64::from(stream.number()));
        self.plane.add_line(id, &name, line);
    }

    /// Returns an unused line number: `number`, or a much larger one. Contexts number their streams alike, and a stream
    /// whose work overlaps has several rows.
    fn line_id(&mut self, number: u64) -> u64 {
        const STRIDE: u64 = 1_000_000;
        let mut id = number;
        while !self.lines.insert(id) {
            id += STRIDE;
        }
        id
    }

    fn work(&mut self, all: &mut Devices<'a, '_>, line: &mut Line, work: Work<'a>, module: TextId, half: TextId) {
        let text = self.text(work);
        let op = all.ops.of_work(work);
        let tf_op = *self.ops.entry(op).or_insert_with(|| self.plane.text(&all.ops.get(op).full_name()));
        let cause = (work.span().map(Span::id), work.batch_id());
        if self.half.0 != Some(cause) {
            self.half = (Some(cause), computes_with_16_bits(work));
        }
        let half_op = self.half.1;
        let share = all.shares.of(work);
        let instruction = work.kernel().and_then(|_| all.program.instruction(all.ops, op, share));
        let hlo_op = instruction.map(|id| self.instruction(all.program, id));
        let group = work.step_id().and_then(|step| all.steps.group(step));
        line.event(text.name, work.start(), work.end(), |stats| {
            stats.add(Stat::CorrelationId, StatValue::U64(work.correlation().into()));
            stats.add(Stat::TfOp, StatValue::Text(tf_op));
            if let Some(group) = group {
                stats.add(Stat::GroupId, StatValue::I64(group));
            }
            if let Some(details) = text.details {
                let stat = match work.detail() {
                    Detail::Kernel(_) => Stat::KernelDetails,
                    Detail::Copy(_) => Stat::MemcpyDetails,
                    Detail::Fill(_) => Stat::MemsetDetails,
                };
                stats.add(stat, StatValue::Text(details));
            }
            if let Some(hlo_op) = hlo_op {
                stats.add(Stat::HloOp, StatValue::Text(hlo_op));
                stats.add(Stat::HloModule, StatValue::Text(module));
                stats.add(Stat::ProgramId, StatValue::U64(Program::ID));
            }
            let Share { flops, bytes } = share;
            for (stat, count) in [(Stat::Flops, flops), (Stat::BytesAccessed, bytes)] {
                if count > 0 {
                    stats.add(stat, StatValue::U64(count));
                }
            }
            if work.kernel().is_some() && (text.half || half_op) {
                stats.add(Stat::Shape, StatValue::Text(half));
            }
            if let Some(node) = work.graph() {
                stats.add(Stat::CudaGraph, StatValue::U64(node.graph.into()));
                stats.add(Stat::CudaGraphNode, StatValue::U64(node.node));
            }
        });
    }

    fn instruction(&mut self, program: &Program, id: InstructionId) -> TextId {
        *self.instructions.entry(id.index()).or_insert_with(|| self.plane.text(program.instruction_name(id)))
    }

    fn text(&mut self, work: Work<'_>) -> WorkText {
        match work.detail() {
            Detail::Kernel(kernel) => *self.kernels.get_or_insert_with(WorkKey::of(work), || {
                let details = self.plane.text(&kernel_details(kernel, self.device));
                let half = ["half", "fp16", "bf16", "f16"].iter().any(|word| kernel.name.contains(word));
                WorkText { name: self.plane.event_name(&kernel.name), details: Some(details), half }
            }),
            // Sizes differ, so each has its own details.
            Detail::Copy(copy) => {
                let (from, to, bytes) = (kind(copy.from), kind(copy.to), copy.bytes);
                let details = format!("num_bytes:{bytes}\nkind_src:{from} kind_dst:{to} size:{bytes}");
                let details = Some(self.plane.text(&details));
                WorkText { name: self.plane.event_name(copy_name(copy.direction)), details, half: false }
            }
            Detail::Fill(fill) => {
                let details = format!("kind:{} num_bytes:{} value:{}", kind(fill.memory), fill.bytes, fill.value);
                let details = Some(self.plane.text(&details));
                WorkText { name: self.plane.event_name("Memset"), details, half: false }
            }
        }
    }

    fn steps(&mut self, all: &Devices<'a, '_>) {
        let name = self.plane.event_name(STEP);
        let mut line = self.plane.line();
        for (group, (start, end)) in (0..).zip(all.steps.times(all.trace)) {
            line.event(name, start, end, |stats| stats.add(Stat::GroupId, StatValue::I64(group)));
        }
        let id = self.line_id(1);
        self.plane.add_line(id, "steps of the host", line);
    }

    fn capabilities(&mut self) {
        let Some(device) = self.device else { return };
        let (major, minor) = device.compute_capability;
        let numbers = [
            (Stat::ClockRate, device.clock_khz.into()),
            (Stat::CoreCount, device.multiprocessors.into()),
            (Stat::MemoryBandwidth, device.memory_bytes_per_second().unwrap_or(0)),
            (Stat::MemorySize, device.memory),
            (Stat::ComputeCapMajor, major.into()),
            (Stat::ComputeCapMinor, minor.into()),
        ];
        for (stat, number) in numbers {
            if number > 0 || stat == Stat::ComputeCapMinor {
                self.plane.add_stat(stat, StatValue::U64(number));
            }
        }
        self.plane.add_stat(Stat::DeviceVendor, StatValue::Str("Nvidia"));
        self.plane.add_stat(Stat::DeviceName, StatValue::Str(&device.name));
        // XProf has one peak for all types, and takes the highest of those used for training.
        let peaks = ["f16", "bf16", "f32"].into_iter().filter_map(|dtype| device.peak_flops(dtype));
        if let Some(peak) = peaks.reduce(f64::max) {
            self.plane.add_stat(Stat::PeakTeraflops, StatValue::F64(peak / 1e12));
        }
    }
}

/// The name of steps. XProf takes events whose names begin with it for steps.
pub(super) const STEP: &str = "train";

fn activity(work: Work<'_>) -> &'static str {
    match work.detail() {
        Detail::Kernel(_) => "Compute",
        Detail::Copy(copy) => copy_activity(copy.direction),
        Detail::Fill(_) => "Memset",
    }
}

fn copy_activity(direction: Direction) -> &'static str {
    match direction {
        Direction::HostToDevice => "MemcpyH2D",
        Direction::DeviceToHost => "MemcpyD2H",
        Direction::DeviceToDevice => "MemcpyD2D",
        Direction::PeerToPeer => "MemcpyP2P",
        _ => "MemcpyOther",
    }
}

/// Returns XProf's name for a copy.
fn copy_name(direction: Direction) -> &'static str {
    match direction {
        Direction::HostToDevice => "MemcpyHToD",
        Direction::DeviceToHost => "MemcpyDToH",
        Direction::DeviceToDevice => "MemcpyDToD",
        Direction::HostToHost => "MemcpyHToH",
        Direction::PeerToPeer => "MemcpyPToP",
        _ => "MemcpyOther",
    }
}

fn kind(memory: MemoryKind) -> &'static str {
    match memory {
        MemoryKind::Pageable => "pageable",
        MemoryKind::Pinned => "pinned",
        MemoryKind::Device => "device",
        MemoryKind::Array => "array",
        MemoryKind::Managed => "managed",
        MemoryKind::Static => "device_static",
        _ => "unknown",
    }
}

fn kernel_details(kernel: &Kernel, device: Option<&Device>) -> String {
    let ([gx, gy, gz], [bx, by, bz]) = (kernel.grid, kernel.block);
    let mut details = format!(
        "regs:{} static_shared:{} dynamic_shared:{} grid:{gx},{gy},{gz} block:{bx},{by},{bz}",
        kernel.registers, kernel.static_shared_memory, kernel.dynamic_shared_memory
    );
    if let Some(occupancy) = device.and_then(|device| device.occupancy(kernel)) {
        details += &format!(" occ_pct:{:.2}", occupancy.theoretical_percent);
    }
    details
}

/// Returns whether the span or the operations of a piece of work state that it computes with 16 bits.
fn computes_with_16_bits(work: Work<'_>) -> bool {
    let is_half =
        |dtype: &str| ["f16", "bf16", "float16", "bfloat16"].iter().any(|half| half.eq_ignore_ascii_case(dtype));
    let spans = work.span().into_iter().flat_map(|span| span.stack().take(1)).map(|span| span.fields().op());
    let operations = work.operations().map(|call| call.fields().op());
    spans.chain(operations).any(|op| op.compute().map_or_else(|| op.dtypes().any(|(_, dtype)| is_half(dtype)), is_half))
}
