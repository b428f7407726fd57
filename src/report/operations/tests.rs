//! Tests of the table of operations.

use super::{OperationAverage, Operations, SortOperationsBy};
use crate::{
    report::Report,
    trace::{
        Operation,
        sample::{add_operations, gpu_trace, operations_trace},
    },
};
use std::sync::Arc;

fn seen(row: &OperationAverage) -> (&str, u64, u64, [u128; 2], u64) {
    (&row.name, row.calls, row.flops, [row.alone, row.shared].map(|time| time.as_micros()), row.kernels)
}

#[test]
fn time_is_alone_where_a_kernel_did_nothing_else() {
    // Two windows of two steps, in each of which a kernel of 20 µs did `matmul` and one of 30 µs all.
    let report = Report::of([&operations_trace(), &operations_trace()]);
    let rows = report.operations().rows();
    let expected =
        [("matmul", 8, 4 * 1_005_000_000, [80, 120], 8), ("add", 8, 64, [0, 120], 4), ("sync", 4, 0, [0, 0], 0)];
    assert_eq!(rows.iter().map(seen).collect::<Vec<_>>(), expected);
    let order = |by| report.operations().sort_by(by).rows().into_iter().map(|row| row.name).collect::<Vec<_>>();
    assert_eq!(order(SortOperationsBy::Name), ["add", "matmul", "sync"]);
    assert_eq!(order(SortOperationsBy::Calls), ["add", "matmul", "sync"], "ties by name");
    assert_eq!(order(SortOperationsBy::Flops), ["matmul", "add", "sync"]);
    assert_eq!(order(SortOperationsBy::Alone), ["matmul", "add", "sync"]);
}

#[test]
fn shapes_make_operations_different() {
    let mut trace = gpu_trace();
    let matmul = |shape: &str| Arc::new(Operation::new("matmul").with("op.shape.lhs", shape));
    let gemm = Operation::clone(&matmul("[2]")).with("op.gemm", "1x2x3").with("op.shape.output", "[9]");
    let (one, two, gemm) = (matmul("[1]"), matmul("[2]"), Arc::new(gemm));
    // Another value, but the same operation.
    let again = matmul("[1]");
    // The first kernel did one shape, twice, and the second two; the graph's kernel and fill did another.
    let calls = [(&one, None, 1), (&again, None, 1), (&one, None, 2), (&two, None, 2), (&gemm, None, 3)];
    add_operations(&mut trace, &calls, &[(2, 1), (3, 2), (4, 3)]);
    let report = Report::of([&trace]);
    let named: Vec<_> = report.operations().rows();
    assert_eq!(named.iter().map(seen).collect::<Vec<_>>(), [("matmul", 5, 0, [70, 0], 3)]);
    let rows = report.operations().group_by_shape(true).rows();
    let shapes: Vec<_> = rows.iter().map(|row| (row.shapes.as_deref(), row.gemm.as_deref(), seen(row))).collect();
    let expected = [
        (Some("[1]"), None, ("matmul", 3, 0, [20, 30], 2)),
        (Some("[2]"), None, ("matmul", 1, 0, [0, 30], 1)),
        // 10 µs of the kernel, and 10 of the fill, which is none.
        (Some("[2]"), Some("1x2x3"), ("matmul", 1, 0, [20, 0], 1)),
    ];
    assert_eq!(shapes, expected);
}

#[test]
fn the_table_shows_what_is_known() {
    let none = Report::of([&gpu_trace()]);
    assert_eq!(none.operations().to_string(), "no operations were recorded: no framework reported any\n");
    assert!(!none.to_string().contains("operations were"), "not asked for, it is not mentioned");
    let report = Report::of([&operations_trace()]);
    let table = report.operations().group_by_shape(true).limit(3).width(120);
    assert_eq!(
        format!("\n{table}"),
        "
---------  ----------  -----------  ------------  ----------  -----------  ------------
Operation  CUDA alone  CUDA shared  # of Kernels  # of Calls  Total FLOPs  Input Shapes
---------  ----------  -----------  ------------  ----------  -----------  ------------
add                 –    60.000 µs             2           4      32 FLOP  [8]
matmul              –    60.000 µs             2           2   1.34 GFLOP  [4, 8]
matmul      40.000 µs            –             2           2    670 MFLOP  [8, 4]
---------  ----------  -----------  ------------  ----------  -----------  ------------
1 more row
"
    );
    assert!(report.to_string().contains("\nOperation  CUDA alone"), "{report}");
    let mut without = operations_trace();
    without.work.clear();
    let table = Report::of([&without]).operations().to_string();
    assert!(!table.contains("CUDA") && table.contains("matmul"), "{table}");
}

#[test]
fn names_and_shapes_are_bounded() {
    let mut trace = gpu_trace();
    let operations: Vec<_> = (0..Operations::NAMES + 20)
        .map(|number| Arc::new(Operation::new(format!("op {number}")).with("op.shape.lhs", format!("[{number}]"))))
        .collect();
    let calls: Vec<_> = operations.iter().map(|operation| (operation, None, 1)).collect();
    add_operations(&mut trace, &calls, &[(2, 1)]);
    let report = Report::of([&trace]);
    let rows = report.operations().limit(usize::MAX).rows();
    assert_eq!(rows.len(), Operations::NAMES + 1);
    assert_eq!(rows.iter().map(|row| row.calls).sum::<u64>(), calls.len() as u64);
    let others = rows.iter().find(|row| row.name == Operations::OTHERS).unwrap();
    assert_eq!(seen(others), (Operations::OTHERS, 20, 0, [0, 20], 1));
    assert_eq!(report.operations().group_by_shape(true).limit(usize::MAX).rows().len(), Operations::NAMES + 1);
}

#[cfg(feature = "serde")]
#[test]
fn rows_can_be_serialized() {
    let json = serde_json::to_value(Report::of([&operations_trace()])).unwrap();
    let row = &json["operations"][0];
    assert_eq!((&row["name"], &row["calls"], &row["kernels"]), (&"matmul".into(), &4.into(), &4.into()));
    assert_eq!(row["alone"]["nanos"], 40_000);
}
