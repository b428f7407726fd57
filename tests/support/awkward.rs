//! A program whose spans, events and operations are hard to export.

use kernspan::{Profiler, trace::Operation};
use std::sync::Arc;
use tracing::{info, info_span};

/// Runs a program with everything that can be recorded on the host: odd names, crossing spans, values that are not
/// finite.
pub fn awkward_program(profiler: &Profiler) {
    let (hand_over, shape) = (profiler.hand_over(), "[8, 4]");
    let matmul = Operation::new("matmul ☃ \"quoted\"").with("op.shape.lhs", shape).with("span", "taken");
    let matmul = Arc::new(matmul.with("op.flops", 64_u64));
    let model = info_span!("model ☃ \"quoted\" \\ \n", layers = 2, note = "a\tb\u{0}c");
    for step in 0..6_u64 {
        let _step = info_span!("train_step", step, src = "taken", level = 3).entered();
        for turn in 0..3_u64 {
            model.in_scope(|| {
                let shape = [turn, 512];
                info_span!("linear", op.shape.input = ?shape, op.dtype.input = "f32", op.flops = 1024 * turn)
                    .in_scope(|| ());
                info_span!("empty").in_scope(|| ());
                hand_over.operation(&matmul);
            });
        }
        let (a, b) = (info_span!("crossing a").entered(), info_span!("crossing b").entered());
        drop(a);
        info!(counter.loss = 1.0 / (step + 1) as f64, ratio = f64::NAN, big = u64::MAX, "progress; {step}");
        drop(b);
        info!(counter.loss = if step == 4 { f64::NAN } else { 0.5 });
        // In the middle of train_step, so that steps and spans cross.
        profiler.step();
    }
}
