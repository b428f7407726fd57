//! Tests of loops that launch the same kernels again and again.

use super::{findings, program};
use crate::{
    analysis::{FindingKind, Remedy},
    trace::sample::GpuTrace,
};

/// The kernels for one head.
const HEAD: [&str; 6] = ["gemm", "scale", "gemm", "softmax", "gemm", "add"];

/// Returns a step with a loop over heads, in the forward and the backward pass, each head in a span of this name.
fn heads(name: &'static str, count: u64, micros: u64, blocks: u32) -> impl Fn(&mut GpuTrace) {
    move |step| {
        for phase in ["forward", "backward"] {
            step.span(phase, |step| {
                step.host(12).launch("embed", 10);
                for head in 0..count {
                    step.span(name, |step| {
                        // The first head has nothing to add to.
                        for kernel in HEAD.into_iter().filter(|kernel| head > 0 || *kernel != "add") {
                            step.host(12).launch_of(kernel, micros, [blocks, 1, 1]);
                        }
                    });
                }
                step.host(12).launch("norm", 10);
            });
        }
    }
}

/// Returns the second remedy of the finding about launches, which is to launch fewer kernels.
fn fewer_launches(step: impl Fn(&mut GpuTrace)) -> Remedy {
    let found = findings(&program(step).trace());
    let finding = found.iter().find(|finding| finding.kind == FindingKind::LaunchBound);
    finding.unwrap_or_else(|| panic!("{found:#?}")).remedies[1].clone()
}

#[track_caller]
fn check(remedy: &Remedy, faulty: impl Fn(&mut GpuTrace), repaired: impl Fn(&mut GpuTrace)) {
    let saved = program(faulty).micros_per_step() - program(repaired).micros_per_step();
    let likely = remedy.saving.likely.as_nanos() as f64 / 1e3;
    assert!((likely / saved - 1.0).abs() < 0.2, "{saved} µs are saved: {remedy:#?}");
}

#[test]
fn a_loop_over_heads_could_run_once() {
    // Kernels that fill the GPU take as long for all heads as one after the other, but for the 1 µs of an empty one.
    let remedy = fewer_launches(heads("head", 8, 3, 4096));
    check(&remedy, heads("head", 8, 3, 4096), heads("head", 1, 1 + 8 * 2, 4096));
    assert!(remedy.change.starts_with("The same 6 kernels run 8 times in a row in `forward`"), "{remedy:#?}");
    // Others take as long for all heads as for one.
    check(&fewer_launches(heads("head", 8, 3, 8)), heads("head", 8, 3, 8), heads("head", 1, 3, 64));
}

#[test]
fn layers_of_a_stack_are_not_a_loop() {
    let remedy = fewer_launches(heads("block", 8, 3, 4096));
    assert!(remedy.change.contains("half as many"), "{remedy:#?}");
    // Nor is a loop of three.
    let remedy = fewer_launches(heads("head", 3, 3, 4096));
    assert!(remedy.change.contains("half as many"), "{remedy:#?}");
}
