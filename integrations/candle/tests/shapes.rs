//! Ops whose shapes change from run to run: each span has its own.

use candle_core::{DType, Device, Tensor};
use kernspan::{Collected, Profiler, trace::Value};
use kernspan_candle::Op;
use tracing_subscriber::prelude::*;

/// Runs an op with these input and output shapes, and returns the input, the output and the FLOPs of each span. The op
/// takes one FLOP per output element.
fn recorded(shapes: &[(&[usize], &[usize])]) -> Vec<(String, String, u64)> {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
    let op = Op::new("op").flops(|_, output| output.elem_count() as u64);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for (input, output) in shapes {
            op.run(&[&zeros(input)], || Ok(zeros(output))).unwrap();
        }
    });
    profiler.finish().unwrap();
    let trace = collected.only();
    let text = |value: Option<&Value>| value.unwrap().to_string();
    let spans = trace.spans().map(|span| {
        let flops = span.field("op.flops").and_then(Value::as_u64).unwrap();
        (text(span.field("op.shape.input")), text(span.field("op.shape.output")), flops)
    });
    spans.collect()
}

fn row(input: &str, output: &str, flops: u64) -> (String, String, u64) {
    (input.to_owned(), output.to_owned(), flops)
}

#[test]
fn inputs_that_change() {
    let seen = recorded(&[(&[2, 4], &[2]), (&[2, 4], &[2]), (&[3, 4], &[3]), (&[2, 4], &[2])]);
    assert_eq!(
        seen,
        [row("[2, 4]", "[2]", 2), row("[2, 4]", "[2]", 2), row("[3, 4]", "[3]", 3), row("[2, 4]", "[2]", 2)]
    );
}

#[test]
fn outputs_that_change_though_the_input_does_not() {
    let seen = recorded(&[(&[8], &[2]), (&[8], &[5]), (&[8], &[5]), (&[8], &[2])]);
    assert_eq!(seen, [row("[8]", "[2]", 2), row("[8]", "[5]", 5), row("[8]", "[5]", 5), row("[8]", "[2]", 2)]);
}
