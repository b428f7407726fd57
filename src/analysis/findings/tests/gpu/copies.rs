//! Tests of the rules about copies.

use super::{MIB, check, findings, model, program};
use crate::{
    analysis::FindingKind,
    trace::{MemoryKind, sample::GpuTrace},
};
use std::time::Duration;

#[test]
fn large_results_are_copied_with_what_the_host_does_with_them() {
    let metrics = |step: &mut GpuTrace| {
        model(step);
        step.span("metrics", |step| {
            step.read(64 * MIB, 1500).host(400);
        });
    };
    check(FindingKind::LargeReadback, metrics, model);
}

#[test]
fn pageable_memory_is_slow() {
    let upload = |from: MemoryKind, micros: u64| {
        move |step: &mut GpuTrace| {
            step.span("to_gpu", |step| {
                step.upload(from, 64 * MIB, micros);
            });
            model(step);
        }
    };
    // By the bus of an H200, 64 MiB take 1.34 ms.
    check(FindingKind::PageableCopy, upload(MemoryKind::Pageable, 6000), upload(MemoryKind::Pinned, 1342));
}

#[test]
fn the_wait_for_a_copy_from_pageable_memory_is_part_of_it() {
    let fault = |step: &mut GpuTrace| {
        step.span("to_gpu", |step| {
            step.upload_and_wait(64 * MIB, 6000);
        });
        model(step);
        // The copy could run meanwhile, if the host did not wait for it.
        step.host(3000);
    };
    let repaired = |step: &mut GpuTrace| {
        step.span("to_gpu", |step| {
            step.upload(MemoryKind::Pinned, 64 * MIB, 1342);
        });
        model(step);
        step.host(3000);
    };
    check(FindingKind::PageableCopy, fault, repaired);
    let found = findings(&program(fault).trace());
    assert!(found.iter().all(|finding| finding.kind != FindingKind::HostSync), "{found:#?}");
}

#[test]
fn small_copies_may_take_turns_with_kernels() {
    let step = |step: &mut GpuTrace, copies: bool| {
        step.span("features", |step| {
            for index in 0..40 {
                step.host(3);
                if copies || index == 0 {
                    step.upload(MemoryKind::Pinned, 2048, 1);
                }
                step.launch("sum", 10);
            }
        });
    };
    let (mut faulty, mut repaired) = (program(|it| step(it, true)), program(|it| step(it, false)));
    let saved = Duration::from_secs_f64((faulty.micros_per_step() - repaired.micros_per_step()) / 1e6);
    let found = findings(&faulty.trace());
    assert_eq!(found[0].kind, FindingKind::TinyCopies, "{found:#?}");
    // The cost of recording calls is subtracted, which these have not.
    assert!(found[0].saving.least <= saved && saved <= found[0].saving.most, "{saved:?}: {:?}", found[0].saving);
    assert!(findings(&repaired.trace()).iter().all(|finding| finding.kind != FindingKind::TinyCopies));
}

#[test]
fn bytes_that_are_not_the_input_are_kept_on_the_gpu() {
    let step = |step: &mut GpuTrace, uploads: bool| {
        step.span("next_batch", |step| {
            step.upload(MemoryKind::Pageable, MIB, 30);
        });
        if uploads {
            step.span("features", |step| {
                step.host(1500).upload(MemoryKind::Pageable, 64 * MIB, 6000);
            });
        }
        model(step);
    };
    check(FindingKind::SameBytesAgain, |it| step(it, true), |it| step(it, false));
    // Without a span of the input pipeline, the copy may be the input.
    let mut input = program(|step| {
        step.span("features", |step| {
            step.upload(MemoryKind::Pageable, 64 * MIB, 6000);
        });
        model(step);
    });
    assert_eq!(findings(&input.trace())[0].kind, FindingKind::PageableCopy);
}

#[test]
fn small_copies_could_be_one() {
    let step = |step: &mut GpuTrace, copies: u64| {
        step.span("weights", |step| {
            (0..copies).for_each(|_| {
                step.host(12).upload(MemoryKind::Pageable, 64, 2);
            });
        });
        model(step);
    };
    check(FindingKind::TinyCopies, |it| step(it, 60), |it| step(it, 1));
}
