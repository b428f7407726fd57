//! Tests of profiles, which read them back.

use super::{
    proto::{Value, XEvent, XLine, XPlane, XSpace, XStat},
    write,
};
use crate::{
    analysis::Analysis,
    export::samples::awkward_trace,
    trace::{
        Counter, Cut, Gpu, GpuProblem, Level, Losses, Timestamp, Trace, Value as FieldValue, convention,
        sample::{add_event, at, gpu_trace, operations_trace, put_in_order, set_fields, set_flops},
    },
};
use prost::Message;
use std::{collections::BTreeSet, io::Cursor, sync::Arc};

struct Read(XSpace);

impl Read {
    fn of(trace: &Trace) -> Self {
        let mut written = Cursor::new(Vec::new());
        write(&Analysis::of(trace), &mut written).unwrap();
        Self(XSpace::decode(&written.into_inner()[..]).unwrap())
    }

    fn plane(&self, name: &str) -> Plane<'_> {
        Plane(self.0.planes.iter().find(|plane| plane.name == name).unwrap_or_else(|| panic!("no {name}")))
    }

    fn gpu(&self) -> Plane<'_> {
        self.plane("/device:GPU:0")
    }

    fn host(&self) -> Plane<'_> {
        self.plane("/host:CPU")
    }
}

#[derive(Clone, Copy)]
struct Plane<'a>(&'a XPlane);

impl<'a> Plane<'a> {
    fn line(self, name: &str) -> &'a XLine {
        self.0.lines.iter().find(|line| line.name == name).unwrap_or_else(|| panic!("no {name}: {:?}", self.lines()))
    }

    fn lines(self) -> Vec<&'a str> {
        self.0.lines.iter().map(|line| line.name.as_str()).collect()
    }

    fn events(self) -> impl Iterator<Item = &'a XEvent> {
        self.0.lines.iter().flat_map(|line| &line.events)
    }

    fn name(self, event: &XEvent) -> &'a str {
        &self.0.event_metadata[&event.metadata_id].name
    }

    fn shown(self, event: &XEvent) -> &'a str {
        let metadata = &self.0.event_metadata[&event.metadata_id];
        if metadata.display_name.is_empty() { &metadata.name } else { &metadata.display_name }
    }

    fn named(self, name: &str) -> Vec<&'a XEvent> {
        self.events().filter(|event| self.name(event) == name).collect()
    }

    fn value(self, stats: &'a [XStat], name: &str) -> Option<&'a Value> {
        let stat = stats.iter().find(|stat| self.0.stat_metadata[&stat.metadata_id].name == name)?;
        stat.value.as_ref()
    }

    fn number(self, event: &'a XEvent, name: &str) -> Option<i64> {
        match self.value(&event.stats, name)? {
            Value::Uint64(number) => i64::try_from(*number).ok(),
            Value::Int64(number) => Some(*number),
            _ => None,
        }
    }

    fn text(self, event: &'a XEvent, name: &str) -> Option<&'a str> {
        match self.value(&event.stats, name)? {
            Value::Ref(text) => Some(&self.0.stat_metadata[&text.cast_signed()].name),
            Value::Str(text) => Some(text),
            _ => None,
        }
    }
}

fn picoseconds(trace: &Trace, at: Timestamp) -> i64 {
    at.since(trace.start()).as_nanos() as i64 * 1000
}

#[test]
fn everything_is_there_once() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let read = Read::of(&trace);
        let gpus = read.0.planes.iter().filter(|plane| plane.name.starts_with("/device:GPU:")).map(Plane);
        let work: usize = gpus.map(|gpu| gpu.events().filter(|event| gpu.text(event, "tf_op").is_some()).count()).sum();
        assert_eq!(work, trace.work().len());
        let host = read.host();
        let calls = host.events().filter(|event| host.number(event, "correlation_id").is_some()).count();
        assert_eq!(calls, trace.api_calls().len());
        let is_memory = |event: &&XEvent| host.name(event).starts_with("Memory");
        assert_eq!(host.events().filter(is_memory).count(), trace.allocations().len());
        let spans = host.events().filter(|event| host.text(event, "tf_op").is_some() && !is_memory(event)).count();
        assert_eq!(spans, trace.spans().len());
        let waits = host.0.lines.iter().filter(|line| line.name == "waits for GPUs").flat_map(|line| &line.events);
        assert_eq!(waits.count(), trace.waits().len());
    }
}

#[test]
fn events_of_a_line_are_in_order_and_begin_with_the_window() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let read = Read::of(&trace);
        let lines = read.0.planes.iter().flat_map(|plane| &plane.lines);
        for line in lines {
            assert_eq!(line.timestamp_ns, 0);
            let key = |event: &XEvent| (event.offset_ps, -event.duration_ps);
            assert!(line.events.is_sorted_by_key(key), "{}", line.name);
        }
        let ids =
            read.0.planes.iter().map(|plane| plane.lines.iter().map(|line| line.id).collect::<BTreeSet<_>>().len());
        assert!(ids.eq(read.0.planes.iter().map(|plane| plane.lines.len())));
    }
}

#[test]
fn kernels_have_their_details_and_their_spans() {
    let mut trace = gpu_trace();
    set_flops(&mut trace, 1, 600, "f32");
    let read = Read::of(&trace);
    let gpu = read.gpu();
    let gemm = gpu.named("gemm")[0];
    let work = trace.work().find(|work| work.kernel().is_some()).unwrap();
    assert_eq!(gemm.offset_ps, picoseconds(&trace, work.start()));
    assert_eq!(gemm.duration_ps, work.duration().as_nanos() as i64 * 1000);
    assert_eq!(gpu.value(&gemm.stats, "correlation_id"), Some(&Value::Uint64(2)));
    assert_eq!(gpu.text(gemm, "tf_op"), Some("train_step/forward:Forward"));
    let details = "regs:74 static_shared:20480 dynamic_shared:0 grid:8,1,6 block:128,1,1 occ_pct:37.50";
    assert_eq!(gpu.text(gemm, "kernel_details"), Some(details));
    assert_eq!((gpu.text(gemm, "hlo_op"), gpu.number(gemm, "flops")), (Some("train_step.forward"), Some(600)));
    assert_eq!(gpu.value(&gemm.stats, "group_id"), Some(&Value::Int64(0)));
    assert_eq!(gpu.text(gemm, "shape"), None);
    let stray = gpu.named("stray")[0];
    assert_eq!((gpu.text(stray, "tf_op"), gpu.number(stray, "group_id")), (Some("unattributed:Unattributed"), None));
    let copy = gpu.named("MemcpyHToD")[0];
    assert_eq!(gpu.text(copy, "memcpy_details"), Some("num_bytes:4000\nkind_src:pageable kind_dst:device size:4000"));
}

#[test]
fn the_precision_follows_from_spans_and_from_names_of_kernels() {
    let mut trace = gpu_trace();
    set_fields(&mut trace, 1, &[("op.dtype.input", FieldValue::Str(Arc::from("BF16")))]);
    let read = Read::of(&trace);
    let half = |event: &XEvent| read.gpu().text(event, "shape").map(str::to_owned);
    let gemms: Vec<_> = read.gpu().named("gemm").into_iter().map(half).collect();
    assert_eq!(gemms, [Some("(half)".to_owned()), None, None, None]);
}

#[test]
fn planes_name_only_the_stats_they_use() {
    // XProf does not group what is grouped already, which it takes from the names.
    let read = Read::of(&gpu_trace());
    let names = |plane: Plane<'_>| plane.0.stat_metadata.values().any(|stat| stat.name == "group_id");
    assert!(names(read.gpu()) && !names(read.host()));
}

#[test]
fn steps_are_as_long_as_they_were() {
    let mut trace = gpu_trace();
    let read = Read::of(&trace);
    let (gpu, host) = (read.gpu(), read.host());
    let steps = host.named("train");
    let numbers: Vec<_> = steps.iter().map(|step| (host.number(step, "_r"), host.number(step, "step_num"))).collect();
    assert_eq!(numbers, [(Some(1), Some(5)), (Some(1), Some(6))]);
    assert_eq!(steps.iter().map(|step| host.shown(step)).collect::<Vec<_>>(), ["ProfilerStep#5", "ProfilerStep#6"]);
    let extent = |event: &XEvent| (event.offset_ps, event.duration_ps);
    let on_host: Vec<_> = steps.into_iter().map(extent).collect();
    let recorded = trace.steps().iter();
    let recorded = recorded.map(|step| (picoseconds(&trace, step.start()), step.duration().as_nanos() as i64 * 1000));
    assert!(on_host.iter().copied().eq(recorded));
    let on_gpu = |gpu: Plane<'_>| gpu.line("steps of the host").events.iter().map(extent).collect::<Vec<_>>();
    assert_eq!(on_gpu(gpu), on_host);
    // Work may be done after the step that launched it.
    let last = trace.work.iter_mut().filter(|work| work.step == Some(crate::trace::StepId::new(0)));
    last.max_by_key(|work| work.end).unwrap().end = at(130);
    let [(first, longer), (second, shorter)] = on_gpu(Read::of(&trace).gpu())[..] else { panic!() };
    let micros = |picoseconds: i64| picoseconds / 1_000_000;
    assert_eq!([first, longer, second, shorter].map(micros), [0, 130, 130, 70]);
}

#[test]
fn steps_that_are_cut_are_left_out_if_there_are_others() {
    let mut trace = gpu_trace();
    trace.steps[0].cut = Cut { start: true, end: false };
    let numbers = |trace: &Trace| {
        let read = Read::of(trace);
        let groups: BTreeSet<_> =
            read.gpu().events().filter_map(|event| read.gpu().number(event, "group_id")).collect();
        let steps = read.host().named("train");
        (steps.into_iter().filter_map(|step| read.host().number(step, "step_num")).collect::<Vec<_>>(), groups.len())
    };
    assert_eq!(numbers(&trace), (vec![6], 1));
    trace.steps[1].cut = Cut { start: false, end: true };
    assert_eq!(numbers(&trace), (vec![5, 6], 2));
}

#[test]
fn what_is_on_a_line_nests() {
    let mut crossing = gpu_trace();
    (crossing.steps[0].end, crossing.steps[1].start) = (at(50), at(50));
    for trace in [gpu_trace(), awkward_trace(), operations_trace(), crossing] {
        let read = Read::of(&trace);
        for line in read.0.planes.iter().flat_map(|plane| &plane.lines) {
            for (index, outer) in line.events.iter().enumerate() {
                let end = outer.offset_ps + outer.duration_ps;
                let crosses = |inner: &&XEvent| inner.offset_ps < end && end < inner.offset_ps + inner.duration_ps;
                assert!(!line.events[index + 1..].iter().any(|inner| crosses(&inner)), "{}", line.name);
            }
        }
        assert_eq!(read.host().named("train").len(), trace.steps().len());
    }
}

#[test]
fn spans_that_end_together_end_one_in_the_other() {
    let mut trace = gpu_trace();
    (trace.spans[2].end, trace.spans[0].end) = (at(95), at(95));
    let read = Read::of(&trace);
    let end = |name: &str| read.host().named(name).first().map(|event| event.offset_ps + event.duration_ps);
    assert_eq!((end("train_step"), end("backward")), (Some(95_000_000), Some(94_999_999)));
}

#[test]
fn fields_are_not_taken_for_stats_of_xprof() {
    let mut trace = gpu_trace();
    set_fields(&mut trace, 0, &[("group_id", FieldValue::U64(7)), ("op.note", FieldValue::F64(f64::NAN))]);
    let read = Read::of(&trace);
    let step = read.host().named("train_step")[0];
    assert_eq!(read.host().number(step, "field.group_id"), Some(7));
    assert_eq!((read.host().number(step, "group_id"), read.host().text(step, "op.note")), (None, Some("NaN")));
}

#[test]
fn names_that_look_like_operations_are_shown_as_they_are() {
    let mut trace = gpu_trace();
    trace.callsites[0].name = "model:Train".into();
    let read = Read::of(&trace);
    let [first, _] = read.host().named("model/Train")[..] else { panic!() };
    assert_eq!(read.host().shown(first), "model:Train");
    assert_eq!(read.host().text(first, "tf_op"), Some("model_Train:ModelTrain"));
}

#[test]
fn a_span_is_not_taken_for_memory() {
    let mut trace = gpu_trace();
    trace.callsites[0].name = "MemoryAllocation".into();
    let read = Read::of(&trace);
    let host = read.host();
    assert_eq!(host.named("MemoryAllocation").len(), 2);
    assert!(host.named("span MemoryAllocation").iter().all(|span| host.shown(span) == "MemoryAllocation"));
}

#[test]
fn steps_that_took_no_time_are_left_out() {
    let mut trace = gpu_trace();
    trace.steps[1].end = trace.steps[1].start;
    assert_eq!(Read::of(&trace).host().named("train").len(), 1);
}

#[test]
fn data_is_part_of_the_input_pipeline() {
    let mut trace = gpu_trace();
    set_fields(&mut trace, 1, &[(convention::INPUT, FieldValue::Str(Arc::from("read")))]);
    trace.callsites[2].name = "data".into();
    let read = Read::of(&trace);
    let host = read.host();
    let category = |name: &str| host.named(name).into_iter().map(|event| host.text(event, "_ipl_stage_cat")).collect();
    let [read_stage, load]: [Vec<_>; 2] = [category("forward"), category("data")];
    assert_eq!((read_stage, load), (vec![Some("read"), None], vec![Some("preprocessing"); 2]));
    // Its number is that of no event's name, as XProf looks for it among those, too.
    let stages = host.events().filter_map(|event| host.number(event, "_ipl_stage_id"));
    assert!(stages.into_iter().all(|stage| !host.0.event_metadata.contains_key(&stage)));
}

#[test]
fn memory_has_the_bytes_in_use_and_their_owner() {
    let trace = gpu_trace();
    let read = Read::of(&trace);
    let host = read.host();
    let first = host.named("MemoryAllocation")[0];
    assert_eq!(host.number(first, "bytes_allocated"), Some(5096));
    assert_eq!(host.number(first, "bytes_available"), Some(150_109_880_320 - 5096));
    assert_eq!(
        (host.text(first, "tf_op"), host.text(first, "region_type")),
        (Some("train_step/forward"), Some("temp"))
    );
    assert_eq!(host.number(host.named("MemoryDeallocation")[0], "peak_bytes_in_use"), Some(5096));
}

#[test]
fn counters_are_on_a_plane_of_their_own() {
    let mut trace = gpu_trace();
    let samples = vec![(at(10), 0.5), (at(20), f64::NAN), (at(30), 0.25)];
    trace.counters = vec![Counter { name: Arc::from("loss"), samples }];
    let read = Read::of(&trace);
    let counters = read.plane("/device:CUSTOM:counters");
    let line = counters.line("_counters_");
    let values: Vec<_> =
        line.events.iter().map(|event| counters.value(&event.stats, "counter.value").cloned()).collect();
    assert_eq!(values, [Some(Value::Double(0.5)), Some(Value::Double(0.25))]);
    assert!(line.events.iter().all(|event| counters.name(event) == "loss"));
    let host = read.host();
    assert_eq!(host.name(&host.line("counters").events[0]), "loss is NaN");
}

#[test]
fn a_banner_says_what_is_missing() {
    assert!(Read::of(&gpu_trace()).0.warnings.is_empty());
    let losses = Losses { lane_full: 3, ..Losses::default() };
    let gpu = Gpu::Unavailable(GpuProblem::NoDevice);
    let read = Read::of(&Trace { losses, gpu, ..Trace::default() });
    assert_eq!(read.0.warnings.len(), 2);
    assert!(read.0.warnings[0].contains('3') && read.0.warnings[1].contains("no device"), "{:?}", read.0.warnings);
}

#[test]
fn the_plane_has_the_capabilities_of_the_device() {
    let read = Read::of(&gpu_trace());
    let gpu = read.gpu();
    let stat = |name: &str| gpu.value(&gpu.0.stats, name).cloned();
    assert_eq!(stat("memory_bandwidth"), Some(Value::Uint64(4_916_736_000_000)));
    assert_eq!(stat("peak_teraflops_per_second"), Some(Value::Double(989.5)));
    assert_eq!(stat("core_count"), Some(Value::Uint64(132)));
}

#[test]
fn texts_of_very_many_events_are_fields_and_no_names() {
    let mut trace = gpu_trace();
    for turn in 0..3_000 {
        let text = format!("{turn} {}", "long ".repeat(200));
        add_event(&mut trace, None, at(turn / 100), Level::Info, &[("message", text.as_str().into())]);
    }
    put_in_order(&mut trace);
    let read = Read::of(&trace);
    let host = read.host();
    let bytes: usize = host.0.event_metadata.values().map(|metadata| metadata.name.len()).sum();
    assert!(bytes < 1_100_000, "{bytes}");
    let is_text = |text: &str| text.contains("long long ");
    let named = host.events().filter(|event| is_text(host.name(event))).count();
    let as_fields = host.events().filter(|event| host.text(event, "field.message").is_some_and(is_text)).count();
    assert!(named > 500 && as_fields > 500 && named + as_fields == 3_000, "{named} {as_fields}");
}
