//! Tests of chains of element-wise kernels.

use super::{check, findings, program};
use crate::{analysis::FindingKind, trace::sample::GpuTrace};

#[test]
fn a_chain_of_kernels_could_be_one() {
    let step = |kernels: &'static [&'static str]| {
        move |step: &mut GpuTrace| {
            (0..5).for_each(|_| {
                step.launch("gemm", 300);
                kernels.iter().for_each(|kernel| {
                    step.launch(kernel, 50);
                });
            });
        }
    };
    let by_hand = ["usqr_f32", "bmul_f32", "affine_f32", "badd_f32", "utanh_f32", "affine_f32", "bmul_f32"];
    let by_hand: &'static [&'static str] = Box::leak(Box::new(by_hand));
    check(FindingKind::UnfusedChain, step(by_hand), step(&["ugelu_f32"]));
    let finding = findings(&program(step(by_hand)).trace()).remove(0);
    assert!(finding.title.contains("GELU"), "{}", finding.title);
    // Over other data, they are not a chain.
    let mut apart = program(|step| {
        (0..5).for_each(|_| {
            step.launch("gemm", 300);
            for (index, kernel) in by_hand.iter().enumerate() {
                step.launch_of(kernel, 50, [8 << (3 * index), 1, 1]);
            }
        });
    });
    let found = findings(&apart.trace());
    assert!(found.iter().all(|finding| finding.kind != FindingKind::UnfusedChain), "{found:#?}");
}

#[test]
fn a_rotary_embedding_copies_its_halves() {
    let step = |is_by_hand: bool| {
        move |step: &mut GpuTrace| {
            (0..5).for_each(|_| {
                step.launch("gemm", 300);
                if !is_by_hand {
                    step.launch("rope_bf16", 40);
                    return;
                }
                for (kernel, micros) in
                    [("uneg_bf16", 40), ("ucopy_bf16", 40), ("copy2d_bf16", 15), ("copy2d_bf16", 15)]
                {
                    step.launch_of(kernel, micros, [512, 1, 1]);
                }
                step.launch("bmul_bf16", 150).launch("bmul_bf16", 150).launch("badd_bf16", 60);
            });
        }
    };
    check(FindingKind::UnfusedChain, step(true), step(false));
    let finding = findings(&program(step(true)).trace()).remove(0);
    assert!(finding.title.contains("as a rotary embedding does"), "{}", finding.title);
}

#[test]
fn attention_can_be_one_kernel() {
    let step = |kernels: &'static [&'static str]| {
        move |step: &mut GpuTrace| {
            (0..5).for_each(|_| {
                step.launch("gemm", 300);
                kernels.iter().for_each(|kernel| {
                    step.launch(kernel, 100);
                });
                step.launch("gemm", 300);
            });
        }
    };
    let written_out = &[
        "at::native::vectorized_elementwise_kernel<BUnaryFunctor<MulFunctor>, array<char*, 2ul>>",
        "at::native::elementwise_kernel<masked_fill_kernel>",
        "at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>",
        "softmax_warp_forward<float, float, float, 10, false, false>",
        "at::native::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>",
        "at::native::vectorized_elementwise_kernel<bfloat16_copy_kernel_cuda, array<char*, 2ul>>",
    ];
    check(FindingKind::UnfusedChain, step(written_out), step(&["pytorch_flash::flash_fwd_kernel"]));
    let finding = findings(&program(step(written_out)).trace()).remove(0);
    assert!(finding.title.contains("as attention does"), "{}", finding.title);
}

#[test]
fn short_chains_go_with_the_long_ones() {
    // A network of which the later layers have less data.
    let step = |kernels: &'static [&'static str]| {
        move |step: &mut GpuTrace| {
            for micros in [48, 24, 12, 6, 6, 6, 6, 6, 6] {
                step.launch("gemm", 40);
                kernels.iter().for_each(|kernel| {
                    step.launch_of(kernel, micros, [micros as u32 * 16, 1, 1]);
                });
            }
        }
    };
    check(
        FindingKind::UnfusedChain,
        step(&["uneg_f32", "uexp_f32", "affine_f32", "urecip_f32", "bmul_f32"]),
        step(&["usilu_f32"]),
    );
}
