//! Tests without a GPU: one message says everywhere why GPUs are not recorded, and the host is recorded all the same.
//!
//! Drivers that fail are compiled from C, and the releases of CUPTI are real ones. A process loads a library once, so
//! each case has a process of its own.

use kernspan::{Activity, Chrome, Perfetto, Profiler, trace::Gpu};
use serde_json::Value as Json;
use std::path::Path;
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// The output of a program that was profiled: its message about GPUs, its report and its exports.
struct Output {
    gpu: String,
    report: String,
    json: Json,
    pftrace: Vec<u8>,
}

/// Runs three steps.
fn run(profiler: &Profiler) {
    for step in 0..3 {
        info_span!("train_step", step).in_scope(|| info_span!("forward").in_scope(|| ()));
        profiler.step();
    }
}

/// Profiles the program, and writes its output into the folder.
fn profile(folder: &Path, activities: impl IntoIterator<Item = Activity>) -> Gpu {
    let (layer, profiler) = Profiler::builder()
        .activities(activities)
        .export(Chrome::to_dir(folder))
        .export(Perfetto::to_dir(folder))
        .build()
        .unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || run(&profiler));
    let gpu = profiler.gpu();
    let report = profiler.finish().unwrap();
    assert_eq!(*report.gpu(), gpu);
    std::fs::write(folder.join("gpu.txt"), gpu.to_string()).unwrap();
    std::fs::write(folder.join("report.txt"), report.to_string()).unwrap();
    gpu
}

impl Output {
    fn read(folder: &Path) -> Self {
        let file = |ending: &str| {
            let mut files = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
            let file = files.find(|file| file.to_str().unwrap().ends_with(ending));
            std::fs::read(file.unwrap_or_else(|| panic!("no {ending}"))).unwrap()
        };
        let text = |ending: &str| String::from_utf8(file(ending)).unwrap();
        let json = serde_json::from_slice(&file(".pt.trace.json")).unwrap();
        Self { gpu: text("gpu.txt"), report: text("report.txt"), json, pftrace: file(".pftrace") }
    }

    /// Checks that the message is one clause and the same everywhere, and that no span is missing.
    fn check(&self) {
        let gpu = &self.gpu;
        assert!(!gpu.contains('\n') && !gpu.contains("  ") && !gpu.ends_with('.'), "{gpu}");
        assert_eq!(self.json["kernspan_gpu"], **gpu);
        assert!(self.pftrace.windows(gpu.len()).any(|text| text == gpu.as_bytes()), "{gpu}");
        let events = self.json["traceEvents"].as_array().unwrap();
        let count =
            |name: &str| events.iter().filter(|event| event["cat"] == "cpu_op" && event["name"] == name).count();
        assert_eq!((count("train_step"), count("forward")), (3, 3));
        assert!(self.report.contains("6 spans in 1 window"), "{}", self.report);
        assert!(
            self.report.contains("complete: no records dropped, no fields cut, no exports failed"),
            "{}",
            self.report
        );
    }
}

#[test]
fn without_gpu_activities_the_report_does_not_mention_gpus() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(profile(folder.path(), [Activity::Host]), Gpu::NotAsked);
    let output = Output::read(folder.path());
    output.check();
    assert_eq!(output.gpu, "GPU not recorded, as it was not asked for");
    assert!(!output.report.contains("GPU"), "{}", output.report);
}

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
#[test]
fn a_build_without_cuda_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = profile(folder.path(), [Activity::Host, Activity::Kernels]);
    assert_eq!(gpu.problem(), Some(&kernspan::trace::GpuProblem::NotBuiltIn));
    let output = Output::read(folder.path());
    output.check();
    assert_eq!(output.gpu, "GPU not recorded: this build has no CUDA support (feature `cuda`, Linux)");
    assert!(output.report.contains(&output.gpu), "{}", output.report);
}

#[cfg(all(feature = "cuda", target_os = "linux", target_arch = "x86_64"))]
mod drivers {
    use super::{Activity, Output, profile};
    use crate::support::{child, cupti};
    use std::{env, path::Path};

    /// A driver whose `cuInit` returns `INIT`, with `DEVICES` devices.
    const WORKING: &str = r#"
        #include <string.h>
        int cuInit(unsigned flags) { return INIT; }
        int cuDeviceGetCount(int *count) { *count = DEVICES; return 0; }
        int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
        int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
        int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "No GPU", length); return 0; }
        int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 1; return 0; }
        int cuGetErrorString(int code, const char **text) {
            *text = code == 803 ? "system has unsupported display driver / cuda driver combination"
                  : code == 999 ? "unknown error" : 0;
            return *text ? 0 : 1;
        }
    "#;

    fn driver(init: u32, devices: u32) -> String {
        format!("#define INIT {init}\n#define DEVICES {devices}\n{WORKING}")
    }

    /// Runs the program with a driver compiled from C and this `KERNSPAN_CUPTI`; `None` without a compiler.
    fn run_with(driver: &str, cupti: Option<&Path>) -> Option<Output> {
        let folder = tempfile::tempdir().unwrap();
        let (library, out) = (folder.path().join("driver"), folder.path().join("out"));
        [&library, &out].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        if !driver.is_empty() && !cupti::make_driver(&library, driver) {
            return None;
        }
        let mut variables = vec![("LD_LIBRARY_PATH", library.as_os_str()), ("KERNSPAN_TEST_OUT", out.as_os_str())];
        variables.extend(cupti.map(|path| ("KERNSPAN_CUPTI", path.as_os_str())));
        child::run("no_gpu::drivers::the_program", &variables);
        let output = Output::read(&out);
        output.check();
        let report = output.report.replace("\n  ", " "); // It wraps long lines.
        assert!(report.contains(&output.gpu) || output.gpu.starts_with("GPU recorded"), "{report}");
        eprintln!("{}", output.gpu);
        Some(output)
    }

    /// Returns the message with a driver that cannot be used.
    fn problem(driver: &str) -> Option<String> {
        let output = run_with(driver, Some(Path::new("/nowhere/libcupti.so.13")))?;
        Some(output.gpu.strip_prefix("GPU not recorded: ").unwrap_or_else(|| panic!("{}", output.gpu)).to_owned())
    }

    /// This is not a test but the program that the others run.
    #[test]
    fn the_program() {
        let Some(out) = env::var_os("KERNSPAN_TEST_OUT") else { return };
        let all = [Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory, Activity::Sync];
        let gpu = profile(out.as_ref(), all);
        // The next profiler of the process gets the same result, whatever the first left behind.
        assert_eq!(profile(tempfile::tempdir().unwrap().path(), all), gpu);
    }

    #[test]
    fn without_a_driver() {
        let output = run_with("", None).unwrap();
        if Path::new("/dev/nvidiactl").exists() || !output.gpu.contains("no NVIDIA driver") {
            eprintln!("there is a driver here: {}", output.gpu);
            return;
        }
        assert!(output.gpu.starts_with("GPU not recorded: no NVIDIA driver (libcuda.so.1: "), "{}", output.gpu);
    }

    #[test]
    fn with_a_driver_that_fails() {
        let Some(none) = problem(&driver(100, 1)) else { return };
        assert_eq!(none, "the NVIDIA driver sees no device");
        assert_eq!(problem(&driver(0, 0)).unwrap(), none);
        assert_eq!(problem(&driver(999, 1)).unwrap(), "cuInit failed with 999 (unknown error)");
        assert_eq!(
            problem(&driver(803, 1)).unwrap(),
            "cuInit failed with 803 (system has unsupported display driver / cuda driver combination)"
        );
        assert_eq!(problem(&driver(34, 1)).unwrap(), "cuInit failed with 34 (unknown error)");
    }

    #[test]
    fn with_a_library_that_is_no_driver() {
        let Some(empty) = problem("int nothing;") else { return };
        assert_eq!(empty, "the NVIDIA driver or CUPTI has no function cuInit");
        let half = problem("int cuInit(unsigned flags) { return 0; }").unwrap();
        assert_eq!(half, "the NVIDIA driver or CUPTI has no function cuDeviceGetCount");
    }

    #[test]
    fn with_a_driver_and_no_cupti() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcupti.so.13");
        let problem = |cupti: Option<&Path>| {
            run_with(&driver(0, 1), cupti).map(|output| output.gpu.replace("GPU not recorded: ", ""))
        };
        let Some(absent) = problem(Some(&path)) else { return };
        let absent = absent.replace(path.to_str().unwrap(), "PATH");
        assert_eq!(
            absent,
            "CUPTI not found; looked for PATH (cannot open shared object file: No such file or directory) \
             (KERNSPAN_CUPTI can name the file)"
        );

        std::fs::write(&path, "this is no library, but it is long enough to be looked at: ".repeat(100)).unwrap();
        let wrong = problem(Some(&path)).unwrap().replace(path.to_str().unwrap(), "PATH");
        assert_eq!(wrong, "CUPTI not found; looked for PATH (invalid ELF header) (KERNSPAN_CUPTI can name the file)");

        // The file is another library than CUPTI: the driver itself.
        assert!(cupti::make_driver(folder.path(), &driver(0, 1)));
        let other = problem(Some(&folder.path().join("libcuda.so.1"))).unwrap();
        assert_eq!(other, "the NVIDIA driver or CUPTI has no function cuptiGetVersion");

        let anywhere = problem(None).unwrap();
        if ["/usr/local/cuda", "/opt/cuda"].iter().any(|toolkit| Path::new(toolkit).exists()) {
            eprintln!("there is a toolkit here: {anywhere}");
            return;
        }
        assert!(
            anywhere.starts_with("CUPTI not found; looked for libcupti.so.13, libcupti.so.12, libcupti.so"),
            "{anywhere}"
        );
    }

    #[test]
    fn with_real_releases_of_cupti_and_no_driver() {
        for (release, library) in cupti::libraries() {
            let output = run_with("", Some(&library)).unwrap();
            assert!(Path::new("/dev/nvidiactl").exists() || output.gpu.contains("driver"), "{release}: {}", output.gpu);
            let Some(output) = run_with(&driver(100, 1), Some(&library)) else { return };
            assert_eq!(output.gpu, "GPU not recorded: the NVIDIA driver sees no device", "{release}");
        }
    }

    /// Release 13.2 is left out: it recurses for ever if the driver has no tables for it, as NVIDIA's has.
    #[test]
    fn with_real_releases_of_cupti_and_a_fake_driver() {
        for (release, library) in cupti::libraries().into_iter().filter(|(release, _)| *release != "13.2") {
            let Some(output) = run_with(&driver(0, 1), Some(&library)) else { return };
            assert!(output.gpu.starts_with("GPU not recorded: cupti"), "{release}: {}", output.gpu);
        }
    }
}

#[cfg(target_os = "linux")]
mod forks {
    #![allow(unsafe_code, reason = "there is no other way to fork")]

    use super::{Activity, profile};
    use crate::support::child;
    use kernspan::{Collected, Profiler};
    use std::env;
    use tracing::info_span;
    use tracing_subscriber::prelude::*;

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn alarm(seconds: u32) -> u32;
    }

    /// This is not a test but the program that the other one runs. It has its own process, as it forks.
    #[test]
    fn the_program() {
        if env::var_os("KERNSPAN_TEST_FORK").is_none() {
            return;
        }
        let collected = Collected::new();
        let (layer, profiler) = Profiler::builder().export(collected.clone()).build().unwrap();
        let forked = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            info_span!("before").in_scope(|| ());
            // It forks often, so that background threads hold locks at some of the forks.
            for _ in 0..20 {
                // SAFETY: the child runs the code below, and has no other threads.
                let process = unsafe { fork() };
                assert!(process >= 0);
                if process == 0 {
                    // SAFETY: the alarm ends the child if it hangs.
                    unsafe { alarm(300) };
                    info_span!("in the child").in_scope(|| ());
                    profiler.step();
                    assert!(!profiler.stop() && !profiler.start());
                    println!("in the child: {}", profiler.gpu());
                    return process;
                }
                let mut status = -1;
                // SAFETY: it writes one number.
                assert_eq!(unsafe { waitpid(process, &mut status, 0) }, process);
                assert_eq!(status, 0, "the child ended well");
            }
            info_span!("after").in_scope(|| ());
            1
        });
        if forked == 0 {
            // Dropping the profiler returns at once, and the child can be profiled by itself.
            drop(profiler);
            profile(tempfile::tempdir().unwrap().path(), [Activity::Host, Activity::Kernels]);
            assert!(collected.traces().is_empty());
            std::process::exit(0);
        }
        profiler.finish().unwrap();
        let names: Vec<_> = collected.only().spans().map(|span| span.name().to_owned()).collect();
        assert_eq!(names, ["before", "after"]);
    }

    #[test]
    fn a_fork_leaves_the_recording_to_its_parent() {
        child::run("no_gpu::forks::the_program", &[("KERNSPAN_TEST_FORK", "1".as_ref())]);
    }
}
