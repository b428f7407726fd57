//! Systems that refuse to sample, or to sample everything: the trace says why, and spans are recorded.

#![allow(unsafe_code, reason = "limits and filters are set with functions of C")]

use super::{compute, cpu_time, frame, is_sampled, record, support::child};
use kernspan::{Samples, Trace};
use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};
use tracing::info_span;

/// Has `perf_event_open` fail with this error, as a container's seccomp profile does.
fn refuse_events(error: i32) {
    const LOAD_NUMBER: libc::sock_filter = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let filter = [
        LOAD_NUMBER,
        // If it is not the call, skip one.
        libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_perf_event_open as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | error as u32 },
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the program, which lives until it returns. No thread but this one is there, and those it
    // starts inherit the filter.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn limit(resource: libc::__rlimit_resource_t, to: u64) {
    let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
    // SAFETY: it reads the limit, which lives until it returns.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

/// Goes on without the privileges of root.
fn become_user() {
    const NOBODY: libc::uid_t = 65_534;
    // SAFETY: these take no pointers. What belongs to the process stays readable to it.
    unsafe {
        if libc::getuid() == 0 {
            assert_eq!(libc::setuid(NOBODY), 0);
        }
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
}

#[inline(never)]
fn busy(duration: Duration) {
    let until = cpu_time() + duration;
    while cpu_time() < until {
        compute();
    }
}

/// Records a busy span, in which there are some more threads. Prints what was sampled.
fn record_busy(threads: usize) -> Trace {
    let barrier = Arc::new(Barrier::new(threads + 1));
    let others: Vec<_> = (0..threads)
        .map(|_| {
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || barrier.wait())
        })
        .collect();
    let trace = record(Samples::default().hertz(999), || {
        info_span!("work").in_scope(|| busy(Duration::from_millis(300)));
    });
    barrier.wait();
    others.into_iter().for_each(|thread| drop(thread.join()));
    assert_eq!(trace.spans().next().unwrap().name(), "work");
    trace
}

/// Runs `program` in a process of its own.
fn in_child(name: &str, program: impl FnOnce()) {
    child::alone(name, program);
}

fn problem(trace: &Trace) -> &str {
    trace.stack_sampling().unwrap().problem().unwrap_or("none")
}

#[test]
fn a_seccomp_filter_is_reported() {
    in_child("refusals::a_seccomp_filter_is_reported", || {
        refuse_events(libc::EPERM);
        let trace = record_busy(0);
        assert_eq!(trace.stack_samples().count(), 0);
        let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
        if paranoid.trim().parse::<i32>().unwrap() < 3 {
            let expected = "stacks are not sampled, as a seccomp filter refuses `perf_event_open`: start the container \
                            with `--cap-add PERFMON`, or with a seccomp profile that allows it";
            assert_eq!(problem(&trace), expected);
        }
    });
}

#[test]
fn a_kernel_without_events_is_reported() {
    in_child("refusals::a_kernel_without_events_is_reported", || {
        refuse_events(libc::ENOSYS);
        let trace = record_busy(0);
        let expected = "stacks are not sampled, as this kernel, or the sandbox it runs in, has no `perf_event_open`";
        assert_eq!(problem(&trace), expected);
    });
}

#[test]
fn threads_beyond_the_limit_of_descriptors_are_counted() {
    in_child("refusals::threads_beyond_the_limit_of_descriptors_are_counted", || {
        limit(libc::RLIMIT_NOFILE, 64);
        let trace = record_busy(40);
        if is_sampled(&trace) {
            let problem = problem(&trace);
            assert!(problem.contains(" threads were not sampled: "), "{problem}");
            assert!(problem.ends_with("raise `ulimit -n`"), "{problem}");
        }
    });
}

#[test]
fn a_user_is_told_what_is_missing() {
    in_child("refusals::a_user_is_told_what_is_missing", || {
        become_user();
        let trace = record_busy(0);
        if is_sampled(&trace) {
            let running = trace.stack_samples().filter(|sample| frame(*sample, "busy").is_some()).count();
            assert!(running > 150, "{running}");
            let problem = problem(&trace);
            let allowed = ["none"].contains(&problem);
            assert!(allowed || problem.starts_with("waits have no stacks: give the program CAP_PERFMON"), "{problem}");
        }
    });
}

#[test]
fn little_memory_to_lock_is_shared_and_reported() {
    in_child("refusals::little_memory_to_lock_is_shared_and_reported", || {
        limit(libc::RLIMIT_MEMLOCK, 0);
        become_user();
        let trace = record_busy(200);
        if is_sampled(&trace) {
            let problem = problem(&trace);
            assert!(problem.contains("threads were not sampled: the memory for their stacks exceeds"), "{problem}");
        }
    });
}
