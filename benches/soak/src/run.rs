use crate::{
    check::{Checked, wrong_counters, wrong_step, wrong_total},
    count,
    plan::Plan,
    requests,
    stacks::Watchdog,
    table::{Phases, Row},
    training::Training,
};
use kernspan::{Profiler, Schedule, analysis::Analysis};
use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

/// The time without a step, or for the end of the run, after which a run counts as hung. Burn tunes its kernels for two
/// minutes before its first step.
const NO_PROGRESS: Duration = Duration::from_secs(200);

/// Trains by a plan and prints a row of the table.
///
/// # Errors
///
/// If a window does not contain exactly the work that was launched in it, or work was lost or is unattributed.
///
/// # Panics
///
/// Without a GPU or CUPTI, saying so.
pub fn run<T: Training>(name: &str, plan: &Plan, make: impl Fn() -> T + Sync) -> Result<(), String> {
    let watchdog = Watchdog::start(NO_PROGRESS);
    if plan.requests {
        return requests::run(name, plan, make, &watchdog);
    }
    let mut training = make();
    (0..20).for_each(|_| training.step());
    let per_window = count::steps(&mut training, plan.active);
    let per_step = per_window / plan.active;

    let checked = Arc::new(Mutex::new(Checked::default()));
    let (seen, eager) = (Arc::clone(&checked), training.is_eager());
    let (threads, active, activities) = (plan.threads, plan.active, plan.activities.clone());
    let check = move |trace: &Analysis<'_>| {
        let wrong = if threads == 1 { wrong_total(trace, per_window) } else { None };
        let wrong = wrong.or_else(|| if eager { wrong_step(trace, active, per_step) } else { None });
        let wrong = wrong.or_else(|| wrong_counters(trace, &activities));
        let unattributed = trace.work().filter(|work| work.span().is_none()).count();
        let wrong = wrong.or_else(|| (unattributed > 0).then(|| format!("{unattributed} unattributed")));
        let mut seen = seen.lock().expect("no panic");
        seen.work += trace.work().len();
        seen.windows += 1;
        seen.wrong.extend(wrong.map(|what| format!("window {}: {what}; {}", trace.window(), trace.losses())));
    };
    let schedule = Schedule::new().skip_first(plan.before).wait(plan.wait).warmup(plan.warmup);
    let builder = Profiler::builder().schedule(schedule.active(plan.active).repeat(plan.windows));
    let mut builder = builder.activities(plan.activities.iter().copied()).on_trace(check);
    if let Some(idle) = plan.detach_after {
        builder = builder.detach_after(idle);
    }
    let (layer, profiler) = builder.build().expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let attached = training.attach(&profiler);

    let mut phases = Phases::new(plan);
    let (mut memory, over) = (Vec::new(), AtomicBool::new(false));
    // Threads allocate before their first step, outside of any span, so the first window must wait for them.
    let ready = Barrier::new(plan.threads as usize);
    std::thread::scope(|scope| {
        for _ in 1..plan.threads {
            scope.spawn(|| {
                let mut training = make();
                ready.wait();
                while !over.load(Ordering::Relaxed) {
                    tracing::info_span!("soak_step").in_scope(|| training.step());
                }
                training.synchronize();
            });
        }
        ready.wait();
        let quarter = plan.steps() / 4;
        for number in 0..plan.steps() {
            let start = Instant::now();
            tracing::info_span!("soak_step").in_scope(|| training.step());
            profiler.step();
            phases.add(number, start.elapsed());
            watchdog.gets_on();
            if number % quarter == quarter - 1 {
                memory.push((resident_memory(), training.free_memory()));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    training.synchronize();
    drop(attached);

    let report = profiler.finish().map_err(|error| error.to_string())?;
    let checked = std::mem::take(&mut *checked.lock().expect("no panic"));
    let unattributed = report.attributions().unattributed;
    let row = Row { name, plan, per_step, checked: &checked, unattributed, lost: report.losses().total(), memory };
    println!("{}", row.format(&phases));
    let mut wrong = checked.wrong;
    if checked.windows != plan.windows {
        wrong.push(format!("{} windows of {}", checked.windows, plan.windows));
    }
    let losses = report.losses();
    let expected = if plan.busy { losses.late } else { 0 };
    if unattributed > 0 || losses.total() != expected {
        wrong.push(format!("{unattributed} unattributed; {losses}"));
    }
    wrong.iter().take(5).for_each(|what| println!("  WRONG {what}"));
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} of {} windows are wrong", wrong.len(), plan.windows)) }
}

/// Returns the resident memory of this process in bytes.
fn resident_memory() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
