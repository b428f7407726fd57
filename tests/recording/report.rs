//! Tests of the report of a program that ran, with rows grouped in different ways. Tests with exact times are in
//! `src/report`.

use crate::support::{profiled, trace_of};
use kernspan::{
    Report,
    report::{Average, SortBy},
};
use tracing::info_span;

fn report_of(program: impl FnOnce()) -> Report {
    profiled(|builder| builder, |_| program()).1
}

fn row(rows: &[Average], name: &str) -> Average {
    rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name} in {rows:#?}")).clone()
}

#[test]
fn rows_can_be_grouped_by_stack() {
    let report = report_of(|| {
        info_span!("encoder").in_scope(|| info_span!("linear").in_scope(|| ()));
        info_span!("decoder").in_scope(|| (0..2).for_each(|_| info_span!("linear").in_scope(|| ())));
    });
    assert_eq!(report.averages().rows().len(), 4, "two places in the source are two rows");

    let linear = || info_span!("linear").in_scope(|| ());
    let report = report_of(|| {
        info_span!("encoder").in_scope(linear);
        info_span!("decoder").in_scope(|| (0..2).for_each(|_| linear()));
    });
    assert_eq!(row(&report.averages().rows(), "linear").calls, 3);
    let rows = report.averages().group_by_stack(1).rows();
    let calls = |stack: &str| rows.iter().find(|row| row.name == "linear" && row.stack == [stack]).unwrap().calls;
    assert_eq!((calls("encoder"), calls("decoder")), (1, 2));
    assert!(report.averages().group_by_stack(1).to_string().contains("Inside"));
}

#[test]
fn rows_can_be_grouped_by_shape() {
    let linear = |inputs: u64| {
        let shape = [64, inputs];
        info_span!("linear", op.shape.input = ?shape, op.flops = 2 * 64 * inputs, op.bytes = 8).in_scope(|| ());
    };
    let report = report_of(|| [512, 512, 10].into_iter().for_each(linear));
    let all = row(&report.averages().rows(), "linear");
    assert_eq!((all.calls, all.flops, all.bytes, all.shapes), (3, 2 * 64 * (512 + 512 + 10), 24, None));
    let rows = report.averages().group_by_shape(true).sort_by(SortBy::Flops).rows();
    let seen: Vec<_> = rows.iter().map(|row| (row.shapes.as_deref().unwrap(), row.calls)).collect();
    assert_eq!(seen, [("[64, 512]", 2), ("[64, 10]", 1)]);
}

#[test]
fn a_span_comes_to_the_operations_of_those_in_it_unless_it_says_so_itself() {
    let report = report_of(|| {
        info_span!("step").in_scope(|| {
            info_span!("attention", op.flops = 100).in_scope(|| info_span!("softmax", op.flops = 7).in_scope(|| ()));
            info_span!("mlp", op.flops = 50).in_scope(|| ());
        });
    });
    let rows = report.averages().rows();
    let flops =
        ["step", "attention", "softmax", "mlp"].map(|name| row(&rows, name)).map(|row| (row.flops, row.total_flops));
    assert_eq!(flops, [(0, 150), (100, 100), (7, 7), (50, 50)]);
    let step = row(&rows, "step");
    assert_eq!(step.flops_per_second, Some(150.0 / step.total_cpu.as_secs_f64()));
    assert_eq!(step.gpu_mfu, None, "no GPU did anything");
    let table = report.averages().width(150).to_string();
    assert!(table.contains("Total FLOPs") && table.contains("FLOP/s") && !table.contains("MFU"), "{table}");
}

#[test]
fn the_report_says_what_there_was() {
    let (_, report) = profiled(
        |builder| builder.schedule(kernspan::Schedule::new().wait(1).active(2).repeat(2)),
        |profiler| {
            for _ in 0..6 {
                info_span!("work").in_scope(|| ());
                profiler.step();
            }
        },
    );
    assert_eq!((report.windows(), report.spans(), report.steps().steps().len()), (2, 4, 4));
    let text = report.to_string();
    assert!(text.contains("4 spans in 2 windows (") && text.contains("; 4 steps\n"), "{text}");
    assert!(text.contains("\ncomplete: no records dropped, no fields cut, no exports failed\n"), "{text}");
}

#[test]
fn recorded_steps_are_compared_with_others_of_the_run() {
    let program = |profiler: &kernspan::Profiler| {
        for _ in 0..30 {
            info_span!("work").in_scope(|| std::hint::black_box((0..100).sum::<u64>()));
            profiler.step();
        }
    };
    let schedule = kernspan::Schedule::new().wait(8).warmup(1).active(6).repeat(1);
    let (_, report) = profiled(|builder| builder.schedule(schedule), program);
    let cost = report.recording_cost().expect("there are enough steps of both kinds");
    // Steps 1 to 7 and 15 to 29: the first one is left out, and so is that of the warm-up.
    assert_eq!((cost.unrecorded.steps, cost.recorded.steps), (22, 6));
    assert_eq!(report.steps().steps().iter().map(|step| step.number).collect::<Vec<_>>(), [9, 10, 11, 12, 13, 14]);
    assert!(cost.unrecorded.lower <= cost.unrecorded.median && cost.unrecorded.median <= cost.unrecorded.upper);
    assert!(cost.factor() > 0.0 && report.to_string().contains("\nprofiling overhead: "), "{report}");
    let (_, report) = profiled(|builder| builder, program);
    assert_eq!(report.recording_cost(), None, "all steps were recorded");
}

#[cfg(feature = "serde")]
#[test]
fn the_report_can_be_serialized() {
    let report = report_of(|| info_span!("work", op.flops = 7).in_scope(|| ()));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["spans"], 1);
    assert_eq!(json["averages"][0]["name"], "work");
    assert_eq!(json["averages"][0]["flops"], 7);
    assert_eq!(json["averages"][0]["total_flops"], 7);
    assert!(json["averages"][0]["flops_per_second"].is_number() && json["averages"][0]["gpu_mfu"].is_null());
    assert_eq!(json["losses"]["lane_full"], 0);
    assert!(json["recorded"]["nanos"].is_number());
}

#[test]
fn names_that_spans_give_themselves_are_bounded() {
    let (traces, report) = profiled(
        |builder| builder.schedule(kernspan::Schedule::new().active(1).repeat(2)),
        |profiler| {
            for window in 0..2 {
                for number in 0..6_000 {
                    info_span!("op", op.name = format!("{window}.{number}")).in_scope(|| ());
                }
                profiler.step();
            }
        },
    );
    let rows = report.averages().limit(usize::MAX).rows();
    // One of the names is the one in the source.
    assert_eq!(rows.len(), 10_000);
    let others = rows.iter().find(|row| row.name == kernspan::report::Averages::OTHERS).unwrap();
    assert_eq!((report.spans(), others.calls), (12_000, 12_000 - 9_999));
    // The limit holds within one window, too.
    let many = trace_of(|_| {
        for number in 0..11_000 {
            info_span!("op", op.name = format!("{number}")).in_scope(|| ());
        }
    });
    let kept = many.spans().filter(|span| span.name() != "op").count();
    assert_eq!((traces.len(), many.spans().len(), kept), (2, 11_000, 9_999));
}
