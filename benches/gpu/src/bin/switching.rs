//! Switches CUPTI alone, without kernspan, on and off while threads launch.
//!
//! `switching WAY [WINDOWS] [THREADS]` records windows of 10 ms with 10 ms between them, and ends each in one of these
//! ways on another thread:
//!
//! - `callbacks`: `cuptiEnableCallback` disables the callbacks. Calls that are in progress then stay on CUPTI's stack
//!   of their thread, and all later calls of the thread get their correlation ids.
//! - `unsubscribe`: `cuptiUnsubscribe` ends the callbacks.
//! - `kinds`: the kinds of activity are disabled, the callbacks stay.
//! - `finalize`: `cuptiFinalize` while subscribed, with the same fault.
//! - `unsubscribe-finalize`: `cuptiFinalize` after `cuptiUnsubscribe`.
//!
//! Prints how many calls had the correlation id of the call before them on their thread, and fails if there were any.

#![allow(unsafe_code, reason = "CUPTI and cuBLAS are C libraries")]

use cudarc::{
    cublas::{CudaBlas, Gemm, GemmConfig, sys::cublasOperation_t::CUBLAS_OP_N},
    driver::result,
};
use cupti_sys::{CallbackData, Cupti, Driver, Subscriber, cbid, domain, kind, site};
use gpu_bench::Gpu;
use std::{
    cell::Cell,
    ffi::c_void,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

const KINDS: [u32; 3] = [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET];
static CALLS: AtomicU64 = AtomicU64::new(0);
static REPEATED: AtomicU64 = AtomicU64::new(0);
static SUBSCRIBER: Mutex<Option<Subscriber>> = Mutex::new(None);

thread_local!(static LAST: Cell<u32> = const { Cell::new(0) });

unsafe extern "C" fn called(_: *mut c_void, _: u32, _: u32, about: *const c_void) {
    // SAFETY: in this domain CUPTI passes a `CallbackData`.
    let about = unsafe { &*about.cast::<CallbackData>() };
    if about.callback_site == site::ENTER {
        CALLS.fetch_add(1, Ordering::Relaxed);
        let repeated = LAST.replace(about.correlation_id) == about.correlation_id;
        REPEATED.fetch_add(repeated.into(), Ordering::Relaxed);
    }
}

unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize) {
    let memory = Box::leak(vec![0_u64; 1 << 15].into_boxed_slice());
    // SAFETY: CUPTI passes valid pointers.
    unsafe { (*buffer, *size, *max_records) = (memory.as_mut_ptr().cast(), 1 << 18, 0) };
}

unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, _: usize) {
    if !buffer.is_null() {
        // SAFETY: it is a buffer from `requested`.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8)) });
    }
}

/// Returns the driver functions that submit work to the GPU.
fn functions() -> impl Iterator<Item = u32> {
    let starts = |name: &str| ["cuLaunch", "cuMemcpy", "cuMemset"].iter().any(|prefix| name.starts_with(prefix));
    cbid::ALL
        .iter()
        .filter(move |(name, _)| starts(name.trim_start_matches("CUPTI_DRIVER_TRACE_CBID_")))
        .map(|(_, id)| *id)
}

fn switch_on(cupti: &Cupti) {
    let mut subscriber = SUBSCRIBER.lock().expect("no panic");
    let subscriber = *subscriber.get_or_insert_with(|| {
        // SAFETY: the callback takes no data and does not unwind.
        let subscriber = unsafe { cupti.subscribe(called, std::ptr::null_mut()) }.expect("CUPTI");
        // SAFETY: buffers are aligned, and stay valid until they are given back.
        unsafe { cupti.activity_register_callbacks(requested, completed) }.expect("CUPTI");
        subscriber
    });
    KINDS.iter().for_each(|kind| cupti.activity_enable(*kind).expect("CUPTI"));
    functions().for_each(|function| drop(cupti.enable_callback(subscriber, domain::DRIVER_API, function, true)));
}

fn switch_off(cupti: &Cupti, way: &str) {
    let mut subscriber = SUBSCRIBER.lock().expect("no panic");
    let mut unsubscribe = || cupti.unsubscribe(subscriber.take().expect("a subscriber")).expect("CUPTI");
    KINDS.iter().for_each(|kind| cupti.activity_disable(*kind).expect("CUPTI"));
    match way {
        "callbacks" => {
            let subscriber = subscriber.expect("a subscriber");
            functions().for_each(|id| drop(cupti.enable_callback(subscriber, domain::DRIVER_API, id, false)));
        }
        "unsubscribe" => unsubscribe(),
        "unsubscribe-finalize" => unsubscribe(),
        "kinds" => {}
        "finalize" => *subscriber = None,
        _ => panic!("unknown way to end recording: {way}"),
    }
    if way.ends_with("finalize") {
        // SAFETY: no other thread calls CUPTI. Launches of other threads at the same time are the subject of the
        // experiment.
        unsafe { cupti.finalize() }.expect("CUPTI");
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let way = arguments.next().unwrap_or_else(|| "callbacks".to_owned());
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (windows, threads) = (number(100_u32), number(1_u32));
    let gpu = Gpu::new();
    let cupti = Cupti::find(Driver::load().expect("a driver")).expect("CUPTI");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| launch(&gpu, &over));
        }
        for _ in 0..windows {
            std::thread::sleep(Duration::from_millis(10));
            switch_on(&cupti);
            std::thread::sleep(Duration::from_millis(10));
            switch_off(&cupti, &way);
        }
        over.store(true, Ordering::Relaxed);
    });
    let (calls, repeated) = (CALLS.load(Ordering::Relaxed), REPEATED.load(Ordering::Relaxed));
    println!(
        "{way}: {windows} windows, {threads} threads, {calls} calls, {repeated} with the correlation id of the last"
    );
    if repeated == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Launches kernels, products, fills and copies without pause.
fn launch(gpu: &Gpu, over: &AtomicBool) {
    let stream = gpu.stream();
    let blas = CudaBlas::new(stream.clone()).expect("cuBLAS");
    let [a, b] = [(); 2].map(|()| stream.alloc_zeros::<f32>(64 * 64).expect("memory"));
    let mut c = stream.alloc_zeros::<f32>(64 * 64).expect("memory");
    let scratch = stream.alloc_zeros::<u8>(64).expect("memory").leak();
    let (transa, transb, alpha, beta) = (CUBLAS_OP_N, CUBLAS_OP_N, 1.0, 0.0);
    let config = GemmConfig { transa, transb, m: 64, n: 64, k: 64, alpha, lda: 64, ldb: 64, beta, ldc: 64 };
    while !over.load(Ordering::Relaxed) {
        (0..12).for_each(|kernel| gpu.launch(kernel % 8, 4, 32, &stream).expect("a launch"));
        // SAFETY: the sizes are those of the matrices and of the memory, which is never freed.
        unsafe {
            blas.gemm(config, &a, &b, &mut c).expect("a product");
            result::memset_d8_async(scratch, 0, 64, stream.cu_stream()).expect("a fill");
            result::memcpy_htod_async(scratch, &[0_u8; 64], stream.cu_stream()).expect("a copy");
        }
    }
    stream.synchronize().expect("the stream");
}
