//! Checks that kernels which a library launches through CUDA's runtime API are attributed to spans.
//!
//! `blas [calls]` runs matrix products of cuBLAS in spans; with `calls`, all calls of both APIs are recorded.

use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, sys::cublasOperation_t::CUBLAS_OP_N};
use gpu_bench::Gpu;
use kernspan::{Activity, Collected, Profiler, trace::Attribution};
use std::collections::BTreeMap;
use tracing_subscriber::prelude::*;

fn main() {
    let mut activities = vec![Activity::Host, Activity::Kernels, Activity::Copies];
    activities.extend(std::env::args().nth(1).map(|_| Activity::ApiCalls));
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let blas = CudaBlas::new(stream.clone()).expect("cuBLAS");
    let collected = Collected::new();
    let (layer, profiler) =
        Profiler::builder().activities(activities).export(collected.clone()).build().expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let sizes = [16, 64, 256, 512, 1024, 2048];
    for round in 0..20 {
        let n = sizes[round % sizes.len()];
        let _span = tracing::info_span!("product", n).entered();
        let (a, b) = (vec![1.0_f32; n * n], vec![1.0_f32; n * n]);
        let (a, b) = (stream.clone_htod(&a).expect("a copy"), stream.clone_htod(&b).expect("a copy"));
        let mut c = stream.alloc_zeros::<f32>(n * n).expect("memory");
        let size = n as i32;
        let config = GemmConfig {
            transa: CUBLAS_OP_N,
            transb: CUBLAS_OP_N,
            m: size,
            n: size,
            k: size,
            alpha: 1.0,
            lda: size,
            ldb: size,
            beta: 0.0,
            ldc: size,
        };
        // SAFETY: the configuration has the sizes of the matrices.
        #[allow(unsafe_code, reason = "cuBLAS is a C library")]
        unsafe { blas.gemm(config, &a, &b, &mut c) }.expect("a product");
    }
    let report = profiler.finish().expect("a report");
    let trace = collected.only();
    let mut calls = BTreeMap::new();
    for call in trace.api_calls() {
        *calls.entry((call.api(), call.name().to_owned())).or_insert(0) += 1;
    }
    println!("{}\n{} pieces of work: {:?}", report.losses(), trace.work().len(), trace.attributions());
    let mut kernels = BTreeMap::new();
    for work in trace.work().filter(|work| work.kernel().is_some()) {
        let api = work.call().map(|call| (call.api(), call.name().to_owned()));
        *kernels.entry(api).or_insert(0) += 1;
    }
    println!("kernels by the call that launched them: {kernels:?}");
    println!("{} kinds of calls, {} calls", calls.len(), calls.values().sum::<i32>());
    assert!(report.losses().is_empty());
    assert!(trace.work().all(|work| work.attribution() == Attribution::Direct));
    assert!(trace.work().filter(|work| work.kernel().is_some()).count() >= 20);
}
