//! Kernels, copies and fills, and their totals.

use super::{attributes, named, options, sent, sent_with};
use crate::{ids::IdKind, options::GpuSpans, spans::SpanOptions};
use kernspan::{
    Report,
    trace::{
        Detail, Work,
        sample::{at, awkward_trace, gpu_trace, operations_trace},
    },
};

#[test]
fn spans_say_what_the_gpu_did_for_them() {
    let sent = sent(&gpu_trace(), GpuSpans::Aggregate);
    let of = |name| attributes(&named(&sent, name)[0].attributes);
    let numbers = |name, keys: &[&str]| {
        let found = of(name);
        keys.iter().map(|key| found.get(key).map(|value| value.parse::<u64>().unwrap())).collect::<Vec<_>>()
    };
    let keys = ["gpu.kernel.count", "gpu.busy_ns", "gpu.self_busy_ns", "gpu.copy.count", "gpu.copy.bytes"];
    // A copy of 4 µs and two `gemm`s of 20 and 30 µs. The other work overlaps the second `gemm`.
    assert_eq!(numbers("train_step", &keys), [Some(3), Some(54_000), Some(4_000), Some(1), Some(4000)]);
    assert_eq!(numbers("forward", &keys), [Some(1), Some(20_000), Some(20_000), None, None]);
    assert_eq!(numbers("backward", &keys), [Some(2), Some(30_000), Some(30_000), None, None]);
    assert_eq!(of("train_step")["gpu.kernel.top"], r#"["0.050 ms in 2 × gemm", "0.010 ms in 1 × node"]"#);
    let off = self::sent(&gpu_trace(), GpuSpans::Off);
    assert!(!attributes(&named(&off, "train_step")[0].attributes).contains_key("gpu.kernel.count"));
}

/// Times differ from the report, which adds up those of all streams, but counts do not.
#[test]
fn counts_of_kernels_are_those_of_the_report() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let sent = sent(&trace, GpuSpans::Aggregate);
        let count = |name: &str| {
            named(&sent, name)
                .iter()
                .map(|span| attributes(&span.attributes)["gpu.kernel.count"].parse::<u64>().unwrap())
                .sum::<u64>()
        };
        let kernels = |name: &str| {
            let below = |work: &Work<'_>| work.span().is_some_and(|span| span.stack().any(|span| span.name() == name));
            trace.work().filter(|work| work.kernel().is_some()).filter(below).count() as u64
        };
        for name in ["train_step", "forward", "backward"] {
            assert_eq!(count(name), kernels(name), "{name}");
        }
        assert!(Report::of([&trace]).kernels().rows().iter().map(|row| row.calls).sum::<u64>() >= count("train_step"));
    }
}

#[test]
fn every_piece_of_work_is_a_span_in_the_span_that_launched_it() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let sent = sent(&trace, GpuSpans::Kernels);
        let run = options(&trace, GpuSpans::Kernels).run;
        assert_eq!(sent.len(), trace.steps().len() + 1 + trace.spans().len() + trace.work().len());
        for work in trace.work() {
            let home = work.step().map_or_else(|| run.window_ids(0), |step| run.step_ids(step.number()));
            let found = &sent[&home.trace.span(IdKind::Work, work.id().index() as u64).to_bytes()[..]];
            let owner = work.span().map_or(home.root, |span| home.trace.span(IdKind::Span, span.id().index() as u64));
            assert_eq!(
                (found.trace_id.as_slice(), found.parent_span_id.as_slice()),
                (&home.trace.to_bytes()[..], &owner.to_bytes()[..])
            );
            let times = (work.start().as_unix_nanos(), work.end().as_unix_nanos());
            assert_eq!((found.start_time_unix_nano, found.end_time_unix_nano), times);
            let said = attributes(&found.attributes);
            assert_eq!(said["gpu.start_ns"], times.0.to_string());
            assert_eq!(said["gpu.duration_ns"], (times.1 - times.0).to_string());
            assert_eq!(said["cuda.stream.id"], work.stream().number().to_string());
            assert_eq!(said["cuda.correlation_id"], work.correlation().to_string());
            assert_eq!(said["gpu.attribution"], format!("{:?}", work.attribution().as_str()));
            let device = trace.device(work.stream().device()).unwrap();
            assert_eq!(
                (&said["hw.id"], &said["cuda.device.index"]),
                (&format!("{:?}", device.uuid), &device.id.to_string())
            );
            assert_eq!(said.get("cuda.graph.id"), work.graph().map(|graph| graph.graph.to_string()).as_ref());
            match work.detail() {
                Detail::Kernel(kernel) => {
                    assert_eq!(said["cuda.kernel.name"], format!("{:?}", kernel.name));
                    assert_eq!(said["cuda.grid"], format!("{:?}", kernel.grid));
                    assert_eq!(said["cuda.block"], format!("{:?}", kernel.block));
                    assert!(kernel.name.contains(&found.name), "{} is not {}", found.name, kernel.name);
                }
                Detail::Copy(copy) => {
                    assert_eq!(
                        (said["cuda.memcpy.bytes"].as_str(), said["cuda.memcpy.kind"].as_str()),
                        ("4000", "\"HtoD\"")
                    );
                    assert_eq!(copy.bytes, 4000);
                    assert_eq!(found.name, work.name().to_string());
                }
                Detail::Fill(_) => assert_eq!(said["cuda.memset.bytes"], "64"),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn what_was_fused_into_a_kernel_is_told() {
    let trace = operations_trace();
    let sent = sent(&trace, GpuSpans::Kernels);
    let fused = trace.work().find(|work| work.operations().len() == 3).unwrap();
    let found =
        sent.values().find(|span| span.start_time_unix_nano == fused.start().as_unix_nanos() && span.name == "gemm");
    let found = found.unwrap();
    assert_eq!(attributes(&found.attributes)["gpu.operations"], r#"["matmul", "add", "add"]"#);
    // `backward` is its parent, and `train_step` asked for one of the operations.
    let others: Vec<_> = found.links.iter().map(|link| sent[&link.span_id].name.as_str()).collect();
    assert_eq!(others, ["train_step"]);
}

#[test]
fn what_is_too_much_is_folded_into_one_span() {
    let trace = gpu_trace();
    let sent = sent_with(&trace, &SpanOptions { most_work: 2, ..options(&trace, GpuSpans::Kernels) });
    // The two `gemm`s of each step took longest; the copy, the node and the fill are folded; the stray kernel is in a
    // trace of its own.
    assert_eq!((named(&sent, "gemm").len(), named(&sent, "node").len(), named(&sent, "stray").len()), (4, 0, 1));
    let folded = named(&sent, "3 shorter kernels and copies");
    assert_eq!(folded.len(), 2);
    let first = folded.iter().find(|span| span.start_time_unix_nano == at(5).as_unix_nanos()).unwrap();
    assert_eq!(first.end_time_unix_nano, at(75).as_unix_nanos());
    let said = attributes(&first.attributes);
    let numbers = ["kernspan.folded", "gpu.kernel.count", "gpu.busy_ns", "gpu.copy.count", "gpu.copy.bytes"];
    assert_eq!(numbers.map(|key| said[key].as_str()), ["3", "1", "19000", "1", "4000"]);
}
