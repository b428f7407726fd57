//! Tests of the rules for windows with a GPU, each on a written program with the fault and on its repair. What the
//! repair saves is known, so that each saving is compared with it.

mod chains;
mod copies;
mod counters;
mod loops;

use super::findings;
use crate::{
    Trace,
    analysis::FindingKind,
    trace::{MemoryKind, StepId, sample::GpuTrace},
};

const MIB: u64 = 1 << 20;

/// Returns a program of six steps.
fn program(body: impl Fn(&mut GpuTrace)) -> GpuTrace {
    let mut program = GpuTrace::default();
    (0..6).for_each(|_| {
        program.step(|step| {
            step.span("train_step", |step| body(step));
        });
    });
    program
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    /// Whatever steps do, no change saves less than nothing or more than the step.
    #[test]
    fn savings_are_within_the_step(work in proptest::collection::vec((0_u8..7, 1_u64..400), 1..40)) {
        let trace = program(|step| {
            for &(what, micros) in &work {
                step.span(["forward", "backward", "next_batch"][usize::from(what % 3)], |step| {
                    match what {
                        0 => step.launch("ampere_sgemm_128x64_nn", micros),
                        1 => step.launch("elementwise_kernel", micros),
                        2 => step.host(micros),
                        3 => step.upload(MemoryKind::Pageable, MIB * micros, micros),
                        4 => step.read(MIB * micros, micros),
                        5 => step.allocate(micros),
                        _ => step.synchronize(),
                    };
                });
            }
        })
        .trace();
        for finding in findings(&trace) {
            let is_free = finding.kind == FindingKind::OutlierSteps;
            for saving in finding.remedies.iter().map(|remedy| remedy.saving).chain([finding.saving]) {
                proptest::prop_assert!(saving.least <= saving.likely && saving.likely <= saving.most, "{finding:?}");
                proptest::prop_assert!(is_free || saving.most <= finding.step, "{finding:?}");
            }
        }
    }
}

/// Work of the model that is neither short nor long: ten kernels of 100 µs.
fn model(step: &mut GpuTrace) {
    step.span("forward", |step| {
        (0..10).for_each(|_| {
            step.launch("gemm", 100);
        });
    });
}

/// Checks that a fault is the first finding, that its saving is that of the repair, and that the repair has it no more.
#[track_caller]
fn check(kind: FindingKind, faulty: impl Fn(&mut GpuTrace), repaired: impl Fn(&mut GpuTrace)) {
    let (mut faulty, mut repaired) = (program(faulty), program(repaired));
    let saved = faulty.micros_per_step() - repaired.micros_per_step();
    check_traces(kind, saved, &faulty.trace(), &repaired.trace());
}

/// The same of traces, of which the repair saves so many microseconds a step.
#[track_caller]
fn check_traces(kind: FindingKind, saved: f64, faulty: &Trace, repaired: &Trace) {
    let found = findings(faulty);
    let first = found.first().unwrap_or_else(|| panic!("nothing was found"));
    assert_eq!(first.kind, kind, "{found:#?}");
    let micros = |time: std::time::Duration| time.as_nanos() as f64 / 1e3;
    let saving = first.saving;
    let error = micros(saving.likely) / saved - 1.0;
    assert!(error.abs() < 0.2, "{saved} µs are saved, not {saving:?}: {first:#?}");
    assert!(micros(saving.least) <= saved && saved <= micros(saving.most), "{saved} µs are saved: {saving:?}");
    assert!(saving.least < saving.likely && saving.likely <= saving.most && saving.most <= first.step, "{saving:?}");
    assert!(!first.evidence.is_empty() && !first.ranges.is_empty() && !first.advice().is_empty(), "{first:#?}");
    let left = findings(repaired);
    assert!(left.iter().all(|finding| finding.kind != kind), "{left:#?}");
}

#[test]
fn a_value_that_is_read_keeps_the_gpu_idle() {
    let step = |step: &mut GpuTrace, reads: bool| {
        (0..10).for_each(|_| {
            step.host(70).launch("gemm", 100);
            if reads {
                step.span("loss", |step| {
                    step.read(4, 2);
                });
            }
        });
    };
    check(FindingKind::HostSync, |it| step(it, true), |it| step(it, false));
}

#[test]
fn a_thread_of_the_framework_waits_for_the_gpu_and_the_program_for_that_thread() {
    let step = |step: &mut GpuTrace, waits: bool| {
        (0..10).for_each(|_| {
            step.span("layer", |step| {
                step.host(70).launch("gemm", 100);
                if waits {
                    step.synchronize_by_another();
                }
            });
        });
        step.launch("add", 5);
    };
    check(FindingKind::HostSync, |it| step(it, true), |it| step(it, false));
    let found = findings(&program(|it| step(it, true)).trace());
    assert_eq!(found[0].path.last().map(String::as_str), Some("layer"), "{found:#?}");
}

#[test]
fn what_is_computed_for_a_condition_is_not_needed_without_it() {
    let operator = |step: &mut GpuTrace, name: &'static str, kernel: u64| {
        step.host(10).span_of("cpu_op", name, |step| {
            step.host(8).launch(name, kernel);
        });
    };
    let step = |step: &mut GpuTrace, tests: bool| {
        (0..8).for_each(|_| {
            ["aten::bmm", "aten::reciprocal"].into_iter().for_each(|name| operator(step, name, 8));
            if tests {
                let condition = ["aten::sub", "aten::abs", "aten::max", "aten::lt"];
                condition.into_iter().for_each(|name| operator(step, name, 3));
                step.host(10).span_of("cpu_op", "aten::is_nonzero", |step| {
                    step.span_of("cpu_op", "aten::item", |step| {
                        step.host(5).read(1, 2);
                    });
                });
            }
        });
        step.host(10).launch("adam", 5);
    };
    check(FindingKind::HostSync, |it| step(it, true), |it| step(it, false));
}

#[test]
fn what_is_read_once_in_a_step_is_computed_for_other_reasons_too() {
    let faulty = |step: &mut GpuTrace| {
        for name in ["aten::sub", "aten::pow", "aten::mean", "aten::isfinite"] {
            step.host(10).span_of("cpu_op", name, |step| {
                step.host(8).launch(name, 3);
            });
        }
        step.host(10).span_of("cpu_op", "aten::is_nonzero", |step| {
            step.read(1, 2);
        });
        // The host is too slow to run ahead.
        (0..3).for_each(|_| {
            step.host(60).launch("gemm", 5);
        });
    };
    let found = findings(&program(faulty).trace());
    let sync = found.iter().find(|finding| finding.kind == FindingKind::HostSync).unwrap();
    // The test takes 23 µs for `isfinite`, 10 to call the read, and 10 or so for the read; the others take 69.
    let micros = sync.saving.likely.as_micros();
    assert!((20..70).contains(&micros), "{sync:#?}");
}

#[test]
fn a_wait_that_nothing_overlaps_with_is_not_reported() {
    // The host would wait for the GPU in any case.
    let mut program = program(|step| {
        model(step);
        step.synchronize();
    });
    assert!(findings(&program.trace()).iter().all(|finding| finding.percent() < 5.0));
}

#[test]
fn convolutions_without_tensor_cores_have_many_names() {
    let step = |kernel: &'static str, micros: u64| {
        move |step: &mut GpuTrace| {
            (0..10).for_each(|_| {
                step.span_of("cpu_op", "aten::cudnn_convolution", |step| {
                    step.launch(kernel, micros);
                });
                step.launch("softmax", 100);
            });
        }
    };
    // Two fifths of the data sheet's 7.4 times.
    let tensor = step("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32", 101);
    check(FindingKind::NoTensorCores, step("void fft2d_r2c_32x32<float>", 300), tensor);
}

#[test]
fn allocations_wait_for_the_gpu() {
    let step = |step: &mut GpuTrace, allocates: bool| {
        (0..5).for_each(|_| {
            step.host(60).launch("gemm", 200).launch("gemm", 200);
            if allocates {
                step.allocate(150);
            }
        });
    };
    check(FindingKind::BlockingAllocation, |it| step(it, true), |it| step(it, false));
}

#[test]
fn many_short_kernels_are_bound_by_their_launches() {
    let launches = |step: &mut GpuTrace| {
        (0..60).for_each(|index| {
            step.host(12).launch(&format!("kernel_{index}"), 3);
        });
    };
    // As a graph.
    let graph = |step: &mut GpuTrace| {
        step.host(5).launch("graph", 60 * 3);
    };
    check(FindingKind::LaunchBound, launches, graph);
    let found = findings(&program(launches).trace());
    let [graph, fewer] = &found[0].remedies[..] else { panic!("{found:#?}") };
    assert!(graph.saving.likely > fewer.saving.likely && fewer.saving.likely > graph.saving.likely / 3, "{found:#?}");
}

#[test]
fn long_kernels_are_not_bound_by_their_launches() {
    // The host is ahead of the GPU but for the wait at the end of the step.
    let mut program = program(|step| {
        (0..40).for_each(|index| {
            step.host(9).launch(&format!("kernel_{index}"), 134);
        });
        step.synchronize();
    });
    let found = findings(&program.trace());
    assert!(found.iter().all(|finding| finding.kind != FindingKind::LaunchBound), "{found:#?}");
}

#[test]
fn one_tensor_after_another_is_launched() {
    let step = |step: &mut GpuTrace, tensors: usize| {
        step.span("forward", |step| {
            (0..12).for_each(|index| {
                step.host(10).launch(&format!("gemm_{index}"), 60);
            });
        });
        step.span("update", |step| {
            (0..tensors).for_each(|_| {
                for kernel in ["bmul_f32", "badd_f32", "usqrt_f32"] {
                    step.host(10).launch_of(kernel, 3, [4, 1, 1]);
                }
            });
        });
    };
    check(FindingKind::TensorByTensor, |it| step(it, 40), |it| step(it, 1));
}

#[test]
fn work_of_the_host_is_that_of_the_user() {
    let step = |step: &mut GpuTrace, micros: u64| {
        step.span("histogram", |step| {
            step.host(micros);
        });
        model(step);
    };
    check(FindingKind::HostWork, |it| step(it, 2500), |it| step(it, 1));
    // The same time in an operation of the framework is its own.
    let mut program = program(|step| {
        step.span_of("candle_core", "op", |step| {
            step.host(400).launch("gemm", 100);
        });
        model(step);
    });
    let found = findings(&program.trace());
    assert!(found.iter().all(|finding| finding.kind != FindingKind::HostWork), "{found:#?}");
}

#[test]
fn a_step_waits_for_its_data() {
    let step = |step: &mut GpuTrace, micros: u64| {
        step.span("next_batch", |step| {
            step.host(micros);
        });
        model(step);
    };
    check(FindingKind::InputBound, |it| step(it, 3000), |it| step(it, 1));
}

#[test]
fn products_are_faster_on_tensor_cores() {
    let step = |kernel: &'static str, micros: u64| {
        move |step: &mut GpuTrace| {
            (0..10).for_each(|_| {
                step.launch(kernel, micros).launch("softmax", 100);
            });
        }
    };
    // Three quarters of the data sheet's 7.4 times.
    let tensor = step("sm90_xmma_gemm_f32f32_tf32f32_f32", 180);
    check(FindingKind::NoTensorCores, step("ampere_sgemm_128x64_nn", 1000), tensor);
}

#[test]
fn work_belongs_to_the_step_that_launched_it() {
    // The host takes 100 µs for a step and the GPU 10 ms, so that the GPU is behind.
    let step = |step: &mut GpuTrace| {
        (0..10).for_each(|_| {
            step.launch("ampere_sgemm_128x64_nn", 1000);
        });
    };
    let trace = |launched_before: usize| -> Trace {
        let mut trace = program(step).trace();
        // The window began after these steps: their calls were not recorded, their work was.
        let is_before = |step: Option<StepId>| step.is_some_and(|step| step.index() < launched_before);
        let steps: Vec<_> = trace.work.iter().map(|work| work.step).collect();
        let calls = 10 * launched_before;
        trace.api_calls.drain(..calls);
        trace.spans.drain(..launched_before);
        trace.steps.drain(..launched_before);
        for (work, step) in trace.work.iter_mut().zip(steps) {
            let before = is_before(step);
            work.call = work.call.filter(|_| !before).map(|id| crate::trace::ApiCallId::new(id.index() - calls));
            work.span = work.span.filter(|_| !before).map(|id| crate::trace::SpanId::new(id.index() - launched_before));
            work.step = work.step.filter(|_| !before).map(|id| StepId::new(id.index() - launched_before));
        }
        trace.spans.iter_mut().for_each(|span| {
            span.step = span.step.map(|id| StepId::new(id.index() - launched_before));
        });
        trace.api_calls.iter_mut().for_each(|call| {
            call.span = call.span.map(|id| crate::trace::SpanId::new(id.index() - launched_before));
        });
        trace.start = trace.steps[0].start;
        trace
    };
    for launched_before in [0, 2] {
        let finding = findings(&trace(launched_before)).remove(0);
        assert_eq!(finding.kind, FindingKind::NoTensorCores);
        assert_eq!(finding.evidence[0], "10 products in a step.");
        assert!(finding.title.contains("take 10.0 ms of each step"), "{}", finding.title);
        assert!((9_900..10_100).contains(&finding.step.as_micros()), "{:?}", finding.step);
    }
}

#[test]
fn slow_steps_do_not_count_for_the_others() {
    let mut program = GpuTrace::default();
    for number in 0..8 {
        program.step(|step| {
            step.span("next_batch", |step| {
                step.host(1000);
            });
            if number == 3 {
                step.span("checkpoint", |step| {
                    step.host(50_000);
                });
            }
            model(step);
            step.synchronize();
        });
    }
    let found = findings(&program.trace());
    let of =
        |kind: FindingKind| found.iter().find(|finding| finding.kind == kind).unwrap_or_else(|| panic!("{found:#?}"));
    let (slow, input) = (of(FindingKind::OutlierSteps), of(FindingKind::InputBound));
    assert!(slow.title.contains("1 of 8 steps") && slow.title.contains("checkpoint"), "{}", slow.title);
    assert!((6_000..7_000).contains(&slow.saving.likely.as_micros()), "50 ms in eight steps: {:?}", slow.saving);
    assert!((2_000..2_200).contains(&input.step.as_micros()), "{:?}", input.step);
}

#[test]
fn slow_steps_without_a_span_of_their_own_have_a_cause() {
    let mut program = GpuTrace::default();
    for number in 0..8 {
        program.step(|step| {
            model(step);
            if number == 4 {
                step.load(40_000);
            }
            step.synchronize();
        });
    }
    let found = findings(&program.trace());
    assert_eq!(found[0].kind, FindingKind::OutlierSteps, "{found:#?}");
    assert_eq!(found[0].title, "1 of 8 steps takes longer than the others, by loading or compiling kernels");
    assert!(
        (4_500..5_500).contains(&found[0].saving.likely.as_micros()),
        "40 ms in eight steps: {:?}",
        found[0].saving
    );
    assert!(found.iter().all(|finding| finding.kind != FindingKind::KernelLoading), "{found:#?}");
}
