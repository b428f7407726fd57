//! Kernels as Perfetto's tab *GPU Compute* reads them: descriptions of the GPUs, and a `GpuRenderStageEvent` for each
//! launch.
//!
//! The tab reads slices of the type `gpu_render_stage` only, so the tracks of [`gpus`](super::gpus) cannot serve it.
//! Its arguments have the names that the tab asks for (`ui/src/plugins/com.meta.GpuCompute/section` in Perfetto). They
//! are written once for all launches that are alike, with the kernel, instead of with each launch: the trace processor
//! adds both to the slice.

use super::{
    compute_proto::{
        Api, ComputeArg, Dim3, GpuDescription, GpuInfo, InternedComputeKernel, InternedGraphicsContext, KeyValue,
    },
    gpus::stream_name,
    sequence::Sequence,
    tracks::TrackWriter,
};
use crate::{
    export::{
        index_ranges::index_ranges,
        wire,
        work_text::{Cache, WorkKey},
    },
    trace::{Device, Kernel, Metadata, Stream, StreamId, Work},
};
use prost::Message;
use std::io;

/// Writes the GPUs and the kernels of each stream.
pub(super) fn write(out: &mut TrackWriter<'_>) -> io::Result<()> {
    let trace = out.trace;
    let of_streams = index_ranges(trace.streams().len(), trace.work().map(|work| work.stream_id().index()));
    if let Some(gpu_info) = gpu_info(trace.devices()) {
        out.gpu_info(gpu_info)?;
    }
    for (index, stream) in trace.streams().iter().enumerate() {
        let of_stream = |work: &Work<'_>| work.stream_id() == StreamId::new(index) && work.kernel().is_some();
        let mut kernels = trace.work_at(of_streams[index].clone()).filter(of_stream).peekable();
        if kernels.peek().is_some() {
            write_stream(out, stream, kernels)?;
        }
    }
    Ok(())
}

/// The most GPUs that are described: the number of a GPU is its place in the list, and a file may have any number.
const MOST_GPUS: u32 = 1024;

/// Describes the GPUs, each at the place of its number.
fn gpu_info(devices: &[Device]) -> Option<GpuInfo> {
    let numbers = devices.iter().map(|device| device.id.as_u32()).filter(|&number| number < MOST_GPUS);
    let mut gpus = vec![GpuDescription::default(); numbers.max()? as usize + 1];
    for device in devices.iter().filter(|device| device.id.as_u32() < MOST_GPUS) {
        gpus[device.id.as_u32() as usize] = describe(device, devices);
    }
    Some(GpuInfo { gpus })
}

fn describe(device: &Device, all: &[Device]) -> GpuDescription {
    let alike = all.iter().filter(|other| other.name == device.name).count();
    // Perfetto names tracks after GPUs, and asks for names that differ.
    let name = if alike > 1 { format!("{} #{}", device.name, device.id) } else { device.name.clone() };
    let vendor = ["NVIDIA", "AMD"].into_iter().find(|vendor| device.name.starts_with(vendor));
    let extra = [
        ("memory_bytes", device.memory),
        ("multiprocessors", device.multiprocessors.into()),
        ("clock_khz", device.clock_khz.into()),
        ("memory_clock_khz", device.memory_clock_khz.into()),
        ("memory_bus_bits", device.memory_bus_bits.into()),
    ];
    let key_value = |(key, value): (&str, u64)| KeyValue { key: Some(key.to_owned()), value: Some(value.to_string()) };
    GpuDescription {
        name: Some(name),
        vendor: vendor.map(str::to_owned),
        model: Some(device.name.clone()),
        architecture: architecture(device),
        uuid: uuid_bytes(&device.uuid),
        extra_info: extra.into_iter().filter(|&(_, value)| value > 0).map(key_value).collect(),
    }
}

/// Returns the architecture as compilers name it, such as `sm_90`.
fn architecture(device: &Device) -> Option<String> {
    let (major, minor) = device.compute_capability;
    (major > 0).then(|| format!("sm_{major}{minor}"))
}

/// Returns the 16 bytes of an id such as `GPU-` and hexadecimal digits.
fn uuid_bytes(uuid: &str) -> Option<Vec<u8>> {
    let digits = uuid.strip_prefix("GPU-")?.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes().to_vec())
}

/// Writes the kernels of a stream, which is a queue in Perfetto's terms.
fn write_stream<'a>(
    out: &mut TrackWriter<'_>,
    stream: &Stream,
    kernels: impl Iterator<Item = Work<'a>>,
) -> io::Result<()> {
    let metadata = out.trace.metadata();
    let device = out.trace.device(stream.device());
    let mut sequence = out.trackless()?;
    // Perfetto knows no context 0.
    let context = u64::from(stream.context().max(1));
    sequence.names().add_context(InternedGraphicsContext {
        iid: Some(context),
        pid: Some(out.pid()),
        api: Some(Api::Cuda as i32),
    });
    let mut name = stream_name(stream, out.trace.has_several_contexts(stream.device()));
    if metadata.world_size > 1 {
        name = format!("{name} · rank {}", metadata.rank);
    }
    let queue = sequence.names().specification(&name);
    let mut launches: Cache<WorkKey, Vec<u8>> = Cache::default();
    let mut event = Vec::new();
    for work in kernels {
        let Some(kernel) = work.kernel() else { continue };
        let launch = launches.get_or_insert_with(WorkKey::of(work), || {
            let mut launch = Vec::new();
            wire::number(&mut launch, 5, context);
            wire::number(&mut launch, 11, stream.device().as_u32().into());
            wire::number(&mut launch, 13, queue);
            encode_launch(&mut launch, &mut sequence, kernel, device, metadata);
            launch
        });
        event.clear();
        wire::number(&mut event, 1, work.id().index() as u64);
        wire::number(&mut event, 2, work.end().since(work.start()).as_nanos() as u64);
        event.extend_from_slice(launch);
        sequence.render_stage(&mut out.packets, work.start(), &event)?;
    }
    sequence.finish(&mut out.packets)
}

/// Encodes the fields of an event shared by all launches that are alike.
fn encode_launch(
    out: &mut Vec<u8>,
    sequence: &mut Sequence,
    kernel: &Kernel,
    device: Option<&Device>,
    metadata: &Metadata,
) {
    let names = sequence.names();
    // A stage of the same name gives the slice its name, in all versions of Perfetto.
    wire::number(out, 14, names.specification(&kernel.name));
    let threads = |size: [u32; 3]| size.into_iter().map(u64::from).fold(1, u64::saturating_mul);
    let (blocks, block) = (threads(kernel.grid), threads(kernel.block));
    let numbers = [
        ("grid_size", blocks),
        ("workgroup_size", block),
        ("thread_count", blocks.saturating_mul(block)),
        ("registers_per_thread", kernel.registers.into()),
        ("shared_mem_static", kernel.static_shared_memory.into()),
        ("shared_mem_dynamic", kernel.dynamic_shared_memory.into()),
        ("process_id", metadata.pid.into()),
    ];
    let mut args: Vec<_> = numbers
        .into_iter()
        .map(|(name, value)| ComputeArg { uint_value: Some(value), ..names.argument(name) })
        .collect();
    if let Some(occupancy) = device.and_then(|device| device.occupancy(kernel)) {
        let numbers = [
            ("waves_per_multiprocessor", occupancy.waves),
            ("sm__maximum_warps_per_active_cycle_pct", occupancy.theoretical_percent),
        ];
        let arg = |(name, value)| ComputeArg { double_value: Some(value), ..names.argument(name) };
        args.extend(numbers.map(arg));
    }
    if !metadata.process.is_empty() {
        args.push(ComputeArg { string_value: Some(metadata.process.clone()), ..names.argument("process_name") });
    }
    let kernel_iid = names.add_kernel(InternedComputeKernel {
        name: Some(kernel.raw_name.to_string()),
        // The stage has it as well, so that it is not written a third time if it is not mangled.
        demangled_name: Some(kernel.name.to_string()).filter(|name| **name != *kernel.raw_name),
        arch: device.and_then(architecture),
        args,
        ..InternedComputeKernel::default()
    });
    wire::number(out, 19, kernel_iid);
    let dimensions = |[x, y, z]: [u32; 3]| Dim3 { x: Some(x), y: Some(y), z: Some(z) };
    wire::message(out, 21, |out| {
        wire::message(out, 1, |out| dimensions(kernel.grid).encode_raw(out));
        wire::message(out, 2, |out| dimensions(kernel.block).encode_raw(out));
    });
}

#[cfg(test)]
mod tests {
    use super::uuid_bytes;
    use crate::{
        export::perfetto::{
            compute_proto::{GpuDescription, InternedComputeKernel},
            document,
            proto::{self, TracePacket},
        },
        trace::{Timestamp, Trace, sample::gpu_trace},
    };
    use prost::Message;
    use std::collections::{BTreeMap, HashMap};

    /// A launch as the trace processor sees it: the names of its queue and stage, and the arguments.
    type Launch = (u64, u64, String, String, BTreeMap<String, String>);

    /// The numbers of a sequence, and its time.
    #[derive(Default)]
    struct Reading {
        now: u64,
        specifications: HashMap<u64, String>,
        kernels: HashMap<u64, InternedComputeKernel>,
        arguments: HashMap<u64, String>,
    }

    fn packets(trace: &Trace) -> Vec<TracePacket> {
        let mut bytes = Vec::new();
        document::write(trace, &mut bytes).unwrap();
        proto::Trace::decode(&bytes[..]).unwrap().packet
    }

    fn launches(trace: &Trace) -> Vec<Launch> {
        let mut sequences: HashMap<u32, Reading> = HashMap::new();
        let mut launches = Vec::new();
        for packet in packets(trace) {
            let reading = sequences.entry(packet.trusted_packet_sequence_id.unwrap()).or_default();
            reading.now = match packet.timestamp_clock_id {
                Some(_) => packet.timestamp.unwrap(),
                None => reading.now + packet.timestamp.unwrap_or(0),
            };
            if let Some(new) = packet.interned_data {
                let names = new.gpu_specifications.into_iter().map(|it| (it.iid.unwrap(), it.name.unwrap()));
                reading.specifications.extend(names);
                reading.kernels.extend(new.compute_kernels.into_iter().map(|it| (it.iid.unwrap(), it)));
                let names = new.compute_arg_names.into_iter().map(|it| (it.iid.unwrap(), it.name.unwrap()));
                reading.arguments.extend(names);
            }
            let Some(event) = packet.gpu_render_stage_event else { continue };
            let kernel = &reading.kernels[&event.kernel_iid.unwrap()];
            let (grid, block) = {
                let launch = event.launch.as_ref().unwrap();
                (launch.grid_size.unwrap(), launch.workgroup_size.unwrap())
            };
            let mut arguments = BTreeMap::from([
                ("name".to_owned(), kernel.name.clone().unwrap()),
                ("grid".to_owned(), format!("{:?}", [grid.x(), grid.y(), grid.z()])),
                ("block".to_owned(), format!("{:?}", [block.x(), block.y(), block.z()])),
            ]);
            for argument in &kernel.args {
                let number = argument.uint_value.map(|number| number.to_string());
                let value = number.or(argument.double_value.map(|number| number.to_string()));
                let name = reading.arguments[&argument.name_iid.unwrap()].clone();
                arguments.insert(name, value.or(argument.string_value.clone()).unwrap());
            }
            let name = |iid: Option<u64>| reading.specifications[&iid.unwrap()].clone();
            let end = reading.now + event.duration.unwrap();
            launches.push((reading.now, end, name(event.hw_queue_iid), name(event.stage_iid), arguments));
        }
        launches
    }

    #[test]
    fn every_launch_has_its_kernel_and_its_size() {
        let trace = gpu_trace();
        let launches = launches(&trace);
        let kernels: Vec<_> = trace.work().filter(|work| work.kernel().is_some()).collect();
        assert!(kernels.len() > 4 && launches.len() == kernels.len());
        for (work, (start, end, queue, stage, arguments)) in kernels.into_iter().zip(&launches) {
            let kernel = work.kernel().unwrap();
            let times = [*start, *end].map(Timestamp::from_unix_nanos);
            assert_eq!(times, [work.start(), work.end()]);
            assert_eq!((queue, &**stage), (&work.stream().label(), &*kernel.name));
            let occupancy = trace.device(work.stream().device()).unwrap().occupancy(kernel).unwrap();
            let volume = |size: [u32; 3]| size.into_iter().product::<u32>();
            for (name, value) in [
                ("name", kernel.raw_name.to_string()),
                ("grid", format!("{:?}", kernel.grid)),
                ("block", format!("{:?}", kernel.block)),
                ("grid_size", volume(kernel.grid).to_string()),
                ("workgroup_size", volume(kernel.block).to_string()),
                ("registers_per_thread", kernel.registers.to_string()),
                ("shared_mem_static", kernel.static_shared_memory.to_string()),
                ("shared_mem_dynamic", kernel.dynamic_shared_memory.to_string()),
                ("waves_per_multiprocessor", occupancy.waves.to_string()),
                ("sm__maximum_warps_per_active_cycle_pct", occupancy.theoretical_percent.to_string()),
            ] {
                assert_eq!(arguments.get(name), Some(&value), "{name}");
            }
        }
    }

    #[test]
    fn gpus_are_described_at_the_place_of_their_number() {
        let mut trace = gpu_trace();
        let mut other = trace.devices[0].clone();
        other.id = crate::trace::DeviceId::new(2);
        trace.devices.push(other);
        let gpus = packets(&trace).into_iter().find_map(|packet| packet.gpu_info).unwrap().gpus;
        assert_eq!((gpus.len(), &gpus[1]), (3, &GpuDescription::default()));
        let device = &trace.devices[0];
        assert_eq!(gpus[0].name, Some(format!("{} #0", device.name)));
        assert_eq!(gpus[2].name, Some(format!("{} #2", device.name)));
        assert_eq!(gpus[0].architecture.as_deref(), Some("sm_90"));
        assert_eq!(gpus[0].uuid, uuid_bytes(&device.uuid));
    }

    #[test]
    fn ids_of_cards_are_read() {
        let bytes: Vec<u8> = (0..16).collect();
        assert_eq!(uuid_bytes("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"), Some(bytes));
        assert_eq!(uuid_bytes("GPU-"), None);
        assert_eq!(uuid_bytes("MIG-00010203-0405-0607-0809-0a0b0c0d0e0f"), None);
        assert_eq!(uuid_bytes("GPU-0001"), None);
    }
}
