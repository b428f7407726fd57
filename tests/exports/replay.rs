//! Tests of windows that were recorded on an H200 (`benches/gpu`, program `record`), decoded and correlated anew.

use crate::support::recorded;
use kernspan::{
    Trace,
    trace::{Api, Attribution, Detail, Direction, MemoryChange, MemoryKind, WaitKind, Work},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The number of steps that were recorded.
const STEPS: usize = 3;

fn kernels<'a>(trace: &'a Trace, name: &str) -> Vec<Work<'a>> {
    trace.work().filter(|work| work.kernel().is_some_and(|kernel| &*kernel.name == name)).collect()
}

/// Returns the names of the spans that a piece of work is in, innermost first.
fn stack(work: Work<'_>) -> Vec<&str> {
    work.span().map(|span| span.stack().map(kernspan::trace::Span::name).collect()).unwrap_or_default()
}

#[test]
fn everything_launched_is_there_and_belongs_to_a_span() {
    for name in ["training", "calls"] {
        let trace = recorded(name);
        assert!(trace.losses().is_empty(), "{name}: {}", trace.losses());
        // Each step has 32 kernels of forward, 5 of the graph, 8 handed over, one that spins, and one of the
        // prefetching; copies of the batch to the device, on it and back, and one of the prefetching; and a fill.
        let count = |of: fn(&Detail) -> bool| trace.work().filter(|work| of(work.detail())).count();
        assert_eq!(count(|detail| matches!(detail, Detail::Kernel(_))), STEPS * (32 + 5 + 8 + 1 + 1), "{name}");
        assert_eq!(count(|detail| matches!(detail, Detail::Copy(_))), STEPS * 4, "{name}");
        assert_eq!(count(|detail| matches!(detail, Detail::Fill(_))), STEPS, "{name}");
        let attributions = trace.attributions();
        let counts = (attributions.direct as usize, attributions.handed_off as usize, attributions.unattributed);
        assert_eq!(counts, (STEPS * 44, STEPS * 8, 0), "{name}");
        assert_eq!(trace.steps().iter().map(kernspan::trace::Step::number).collect::<Vec<_>>(), [2, 3, 4]);
    }
}

#[test]
fn kernels_are_in_the_spans_that_launched_them() {
    let trace = recorded("training");
    for work in trace.work().filter(|work| work.kernel().is_some() && work.graph().is_none()) {
        let kernel = work.kernel().unwrap();
        let (expected, step) = match (&*kernel.name, kernel.grid[0]) {
            ("spin", _) => (vec!["optimizer", "train_step"], None),
            ("data", grid) => (vec!["prefetch"], Some(u64::from(grid) - 100)),
            // Handed over: the span is the layer in backward, though the device's thread launched the kernel.
            ("backward", _) => (vec!["layer", "backward", "train_step"], None),
            (_, grid) => (vec!["layer", "forward", "train_step"], Some(u64::from(grid) - 1)),
        };
        assert_eq!(stack(work), expected, "{kernel:?}");
        assert!(step.is_none_or(|step| work.step().unwrap().number() == step), "{kernel:?}");
        let handed_off = work.attribution() == Attribution::HandedOff;
        assert_eq!(handed_off, &*kernel.name == "backward");
        let thread = work.call().unwrap().track().thread_name();
        assert_eq!(thread == "device", handed_off, "{thread}");
        assert_eq!(thread == "loader", &*kernel.name == "data", "{thread}");
    }
    // Each of backward's four layers has the two kernels of its grid.
    for work in kernels(&trace, "backward") {
        let (span, parent) = (work.span().unwrap(), work.span().unwrap().parent().unwrap().id());
        let siblings = trace.spans().filter(|other| other.parent().is_some_and(|outer| outer.id() == parent));
        let index = siblings.take_while(|other| other.id() != span.id()).count();
        assert_eq!(work.kernel().unwrap().grid[0] as usize, 10 + index);
    }
}

#[test]
fn the_nodes_of_a_graph_belong_to_the_span_that_launched_it() {
    let trace = recorded("training");
    let nodes: Vec<_> = trace.work().filter(|work| work.graph().is_some()).collect();
    assert_eq!(nodes.len(), STEPS * 5);
    for work in &nodes {
        assert_eq!(stack(*work), ["graph", "train_step"]);
        assert_eq!(work.call().unwrap().name(), "cuGraphLaunch");
        assert!(work.duration() < Duration::from_micros(20), "{:?}", work.duration());
    }
    let distinct: BTreeSet<_> = nodes.iter().map(|work| work.graph().unwrap().node).collect();
    assert_eq!(distinct.len(), 5, "each node keeps its number from launch to launch");
    let launches: BTreeSet<_> = nodes.iter().map(|work| work.correlation()).collect();
    assert_eq!(launches.len(), STEPS);
    // The two nodes that spin ran at the same time, on different rows.
    let of_one = nodes.iter().filter(|work| work.correlation() == nodes[0].correlation());
    let spins: Vec<_> = of_one.filter(|work| &*work.kernel().unwrap().name == "spin").collect();
    assert!(spins[0].start() < spins[1].end() && spins[1].start() < spins[0].end());
    assert_ne!(spins[0].stream_id(), spins[1].stream_id());
}

#[test]
fn kernels_say_how_they_were_launched() {
    let trace = recorded("training");
    let work = kernels(&trace, "data")[0];
    let kernel = work.kernel().unwrap();
    assert_eq!((kernel.grid[1..].to_vec(), kernel.block), (vec![1, 1], [128, 1, 1]));
    assert!(kernel.registers > 0);
    let device = trace.device(work.stream().device()).unwrap();
    assert_eq!((device.name.as_str(), device.compute_capability, device.multiprocessors), ("NVIDIA H200", (9, 0), 132));
    let occupancy = device.occupancy(kernel).unwrap();
    assert!(occupancy.percent > 0.0 && occupancy.percent < 100.0);
    assert!(trace.gpu().is_available(), "{}", trace.gpu());
}

#[test]
fn copies_say_what_they_copied() {
    let trace = recorded("training");
    let mut copies = BTreeMap::new();
    for work in trace.work() {
        if let Detail::Copy(copy) = work.detail() {
            let entry = copies.entry((copy.direction, copy.from, copy.to, copy.bytes)).or_insert(0);
            *entry += 1;
            assert!(work.bytes_per_second().unwrap() > 1e8);
        }
    }
    let (host, device) = (MemoryKind::Pageable, MemoryKind::Device);
    let expected = [
        ((Direction::HostToDevice, host, device, 4096), STEPS),
        ((Direction::HostToDevice, host, device, 16384), STEPS),
        ((Direction::DeviceToHost, device, host, 16384), STEPS),
        ((Direction::DeviceToDevice, device, device, 16384), STEPS),
    ];
    assert_eq!(copies.into_iter().collect::<Vec<_>>(), expected);
    let name = trace.work().find(|work| matches!(work.detail(), Detail::Copy(_))).unwrap().name().to_string();
    assert!(name.starts_with("Memcpy ") && name.contains(" -> "), "{name}");
}

#[test]
fn memory_is_counted_and_belongs_to_the_span_that_took_it() {
    let trace = recorded("training");
    // Each step allocates the batch, its copy on the device and the prefetched batch, and frees all three.
    let (taken, freed): (Vec<_>, Vec<_>) =
        trace.allocations().partition(|allocation| allocation.change() == MemoryChange::Allocate);
    assert_eq!((taken.len(), freed.len()), (STEPS * 3, STEPS * 3));
    let owner = |allocation: &kernspan::trace::Allocation<'_>| {
        (allocation.span().unwrap().name().to_owned(), allocation.bytes())
    };
    let owners: BTreeSet<_> = taken.iter().map(owner).collect();
    let expected = [("data", 16384), ("optimizer", 16384), ("prefetch", 4096)];
    assert_eq!(owners, expected.map(|(name, bytes)| (name.to_owned(), Some(bytes))).into());
    assert!(freed.iter().all(|allocation| allocation.bytes().is_some() && allocation.pooled()));
    let last = trace.allocations().last().unwrap();
    let first = trace.allocations().next().unwrap();
    assert_eq!(last.in_use() as i64, first.in_use() as i64 - first.delta(), "all was given back");
    let most = trace.allocations().map(kernspan::trace::Allocation::in_use).max().unwrap();
    assert!((32768..65536).contains(&most), "{most}");
}

#[test]
fn waits_say_who_waited_for_what() {
    let trace = recorded("training");
    let waits: Vec<_> = trace.waits().collect();
    assert_eq!(waits.len(), STEPS);
    for wait in waits {
        assert_eq!(wait.kind(), WaitKind::Stream);
        assert_eq!(wait.call().unwrap().name(), "cuStreamSynchronize");
        assert_eq!(wait.span().unwrap().name(), "train_step");
        assert!(wait.stream().is_some() && wait.device().is_some());
    }
}

#[test]
fn all_calls_are_there_when_asked_for() {
    let trace = recorded("calls");
    let names: BTreeSet<_> = trace.api_calls().map(kernspan::trace::ApiCall::name).collect();
    for name in
        ["cuLaunchKernel", "cuGraphLaunch", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemcpyDtoHAsync", "cuCtxGetCurrent"]
    {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    assert!(trace.api_calls().all(|call| call.api() == Api::CudaDriver && call.result() == 0));
    assert_eq!(trace.allocations().len(), 0, "memory was not asked for");
}

#[test]
fn calls_lie_in_their_spans_and_before_their_work() {
    for name in ["training", "calls"] {
        let trace = recorded(name);
        for call in trace.api_calls() {
            let contains = |span: kernspan::trace::Span<'_>| span.start() <= call.start() && call.end() <= span.end();
            assert!(
                call.attribution() == Attribution::HandedOff || call.span().is_none_or(contains),
                "{}",
                call.name()
            );
            assert!(trace.start() <= call.start() && call.start() <= trace.end());
        }
        for work in trace.work() {
            assert!(work.call().unwrap().start() <= work.start(), "{}", work.name());
        }
    }
}

#[test]
fn rows_do_not_overlap() {
    let trace = recorded("training");
    for (one, other) in trace.work().zip(trace.work().skip(1)) {
        assert!(one.stream_id() != other.stream_id() || one.end() <= other.start());
        assert!(one.stream_id() <= other.stream_id());
    }
}

#[test]
fn a_file_that_is_no_recording_is_an_error() {
    assert!(kernspan::replay(&b"not a recording"[..]).is_err());
    let empty = kernspan::replay(&b""[..]).unwrap();
    assert_eq!((empty.work().len(), empty.spans().len()), (0, 0));
}
