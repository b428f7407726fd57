//! Windows on demand: another thread asks for them while the training goes on.

use crate::{
    check::{Checked, wrong_step, wrong_total},
    count,
    plan::Plan,
    stacks::Watchdog,
    training::Training,
};
use kernspan::{
    FlightRecorder, Profiler, Schedule,
    analysis::Analysis,
    control::{
        Client, Control, Listen, Progress, RecordRequest,
        protocol::{Record, RecordProgress, RecordState, WATCH_EVERY_MIN},
    },
};
use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

/// The times of a request, and its work without a span.
struct Answered {
    /// From the request until its window was open, and until it was written.
    opened: Duration,
    written: Duration,
    unattributed: u64,
}

/// Trains while `plan.windows` windows of `plan.active` steps are requested, one as soon as the one before is written,
/// and prints a row of the table.
pub(crate) fn run<T: Training>(
    name: &str,
    plan: &Plan,
    make: impl Fn() -> T,
    watchdog: &Watchdog,
) -> Result<(), String> {
    let mut training = make();
    (0..20).for_each(|_| training.step());
    let per_window = count::steps(&mut training, plan.active);
    let checked = Arc::new(Mutex::new(Checked::default()));
    let (seen, eager, active) = (Arc::clone(&checked), training.is_eager(), plan.active);
    let check = move |trace: &Analysis<'_>| {
        let wrong = wrong_total(trace, per_window);
        let wrong = wrong.or_else(|| if eager { wrong_step(trace, active, per_window / active) } else { None });
        let mut seen = seen.lock().expect("no panic");
        seen.windows += 1;
        seen.work += trace.work().len();
        seen.wrong.extend(wrong.map(|what| format!("window {}: {what}; {}", trace.window(), trace.losses())));
    };
    let mut builder = Profiler::builder().schedule(Schedule::manual()).on_trace(check).listen(Listen::default());
    if let Some(gpu) = plan.flight {
        builder = builder.flight_recorder(FlightRecorder::steps(plan.wait).gpu(gpu));
    }
    if let Some(idle) = plan.detach_after {
        builder = builder.detach_after(idle);
    }
    let (layer, profiler) = builder.build().expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let attached = training.attach(&profiler);

    let train = |training: &mut T| {
        let start = Instant::now();
        tracing::info_span!("soak_step").in_scope(|| training.step());
        profiler.step();
        watchdog.gets_on();
        start.elapsed()
    };
    let step = median((0..plan.before).map(|_| train(&mut training)).collect());
    let watched = plan.watched.then(|| watched(plan.before, || train(&mut training))).transpose()?;
    let (control, windows, by_socket) = (profiler.control(), plan.windows, plan.socket);
    let asking = std::thread::spawn(move || {
        let ask = || if by_socket { ask_by_socket(active) } else { ask(&control, active) };
        (0..windows).map(|_| ask()).collect::<Result<Vec<_>, _>>()
    });
    while !asking.is_finished() {
        train(&mut training);
    }
    let answered = asking.join().map_err(|_| "the asking thread panicked")??;
    (0..plan.after).for_each(|_| {
        train(&mut training);
    });
    training.synchronize();
    drop(attached);

    let report = profiler.finish().map_err(|error| error.to_string())?;
    let checked = std::mem::take(&mut *checked.lock().expect("no panic"));
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let mut opened: Vec<_> = answered.iter().skip(1).map(|request| request.opened).collect();
    opened.sort_unstable();
    let written = answered.iter().map(|request| request.written).max().unwrap_or_default();
    let unattributed = answered.iter().map(|request| request.unattributed).sum::<u64>();
    println!(
        "{name}: {} windows of {active} steps on request, {} wrong, {} of {} kernels, copies and fills of no span; a \
         step takes {}; a window opens after {} the first time, then {} (median), {} (most), and is written after {} \
         at most; {}",
        checked.windows,
        checked.wrong.len(),
        unattributed,
        checked.work,
        millis(step),
        millis(answered[0].opened),
        millis(opened.get(opened.len() / 2).copied().unwrap_or_default()),
        millis(opened.last().copied().unwrap_or_default()),
        millis(written),
        report.losses(),
    );
    if let Some((alone, watched)) = watched {
        println!("{name}: a step takes {} unwatched, {} watched (medians, in turns)", millis(alone), millis(watched));
    }
    let mut wrong = checked.wrong;
    if checked.windows != plan.windows || unattributed > 0 || report.losses().total() > 0 {
        wrong.push(format!("{} windows, {unattributed} unattributed; {}", checked.windows, report.losses()));
    }
    wrong.iter().take(5).for_each(|what| println!("  WRONG {what}"));
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} of {} windows are wrong", wrong.len(), plan.windows)) }
}

/// Trains in turns unwatched and watched by a client, five times each. Returns the medians of both.
fn watched(steps: u64, mut train: impl FnMut() -> Duration) -> Result<(Duration, Duration), String> {
    let [mut alone, mut watched] = [const { Vec::new() }; 2];
    for _ in 0..5 {
        alone.extend((0..steps).map(|_| train()));
        let client = Client::of_process(std::process::id()).map_err(|error| error.to_string())?;
        let states = client.watch(WATCH_EVERY_MIN).map_err(|error| error.to_string())?;
        let (over, is_over) = mpsc::channel::<()>();
        let watching = std::thread::spawn(move || {
            states.take_while(|_| is_over.try_recv() != Err(mpsc::TryRecvError::Disconnected)).count()
        });
        watched.extend((0..steps).map(|_| train()));
        drop(over);
        while !watching.is_finished() {
            train();
        }
        watching.join().map_err(|_| "the watching thread panicked")?;
    }
    Ok((median(alone), median(watched)))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Asks for a window through the program's own socket, as another process would.
fn ask_by_socket(steps: u64) -> Result<Answered, String> {
    let asked = Instant::now();
    let mut opened = None;
    let mut client = Client::of_process(std::process::id()).map_err(|error| error.to_string())?;
    let note = |progress: RecordProgress| {
        if progress.state != RecordState::Waiting {
            opened.get_or_insert_with(|| asked.elapsed());
        }
    };
    let recorded = client.record(&Record::steps(steps), note).map_err(|error| error.to_string())?;
    let written = asked.elapsed();
    Ok(Answered { opened: opened.unwrap_or(written), written, unattributed: recorded.unattributed })
}

/// Asks for a window, and waits until it is written.
fn ask(control: &Control, steps: u64) -> Result<Answered, String> {
    let asked = Instant::now();
    let requested = control.record(RecordRequest::steps(steps));
    let limit = Duration::from_secs(60);
    let progress = requested.wait_for_change(&Progress::Waiting, limit);
    let opened = asked.elapsed();
    let Progress::Recording = progress else { return Err(format!("{progress:?} after {opened:?}")) };
    let recorded = requested.wait()?;
    Ok(Answered { opened, written: asked.elapsed(), unattributed: recorded.unattributed })
}
