//! Tests of the summaries that step exporters get of every step, whatever the schedule is.

use crate::support::steps::{StepCollector, failures, step_summaries};
use kernspan::{
    Exporter, Phase, Profiler, Schedule,
    analysis::Analysis,
    export::{ExportResult, Run, StepExporter, StepSummary},
    trace::Timestamp,
};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use tracing::{info, info_span};

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp::from_unix_nanos(now.as_nanos() as u64)
}

fn numbers(steps: &[StepSummary]) -> Vec<u64> {
    steps.iter().map(|step| step.number).collect()
}

#[test]
fn every_step_has_a_summary_whatever_the_schedule_is() {
    use Phase::{Record, RecordAndSave, Wait, Warmup};
    let schedule = Schedule::new().wait(2).warmup(1).active(2).repeat(1);
    let (steps, report) =
        step_summaries(|builder| builder.schedule(schedule), |profiler| (0..9).for_each(|_| profiler.step()));
    assert_eq!(numbers(&steps), (0..9).collect::<Vec<_>>());
    let phases: Vec<_> = steps.iter().map(|step| step.phase).collect();
    assert_eq!(phases, [Wait, Wait, Warmup, Record, RecordAndSave, Wait, Wait, Wait, Wait]);
    assert!(steps.iter().all(|step| step.ended && step.counters.is_empty()));
    assert!(report.unwrap().losses().is_empty());
}

#[test]
fn steps_follow_each_other_on_the_wall_clock() {
    let before = now();
    let mut called = Vec::new();
    let (steps, _) = step_summaries(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            for millis in [1, 500, 3, 700, 2] {
                // Some steps are longer than the interval of the step thread, so that summaries come alone and
                // together.
                std::thread::sleep(Duration::from_millis(millis));
                let began = Instant::now();
                profiler.step();
                called.push((began, Instant::now()));
            }
        },
    );
    let after = now();
    assert!(steps.windows(2).all(|pair| pair[0].end() == pair[1].start), "{steps:?}");
    // A step lasts from one call to the next. The rate of the clock is exact to half a percent.
    for (step, calls) in steps[1..].iter().zip(called.windows(2)) {
        let (least, most) = (calls[1].0 - calls[0].1, calls[1].1 - calls[0].0);
        assert!(
            least * 99 / 100 <= step.duration && step.duration <= most * 101 / 100,
            "{step:?}: {least:?}, {most:?}"
        );
    }
    // The times are those of the wall clock, not of a clock that counts from the start of the machine.
    let slack = Duration::from_secs(1);
    assert!(steps[0].start.as_unix_nanos() + slack.as_nanos() as u64 > before.as_unix_nanos(), "{steps:?}");
    assert!(steps[4].end().as_unix_nanos() < after.as_unix_nanos() + slack.as_nanos() as u64, "{steps:?}");
}

#[test]
fn recorded_steps_take_as_long_as_in_the_trace() {
    let kept = StepCollector::default();
    let (traces, _) = crate::support::profiled(
        |builder| builder.schedule(Schedule::steps(1..=3)).export(kept.clone()),
        |profiler| {
            for _ in 0..5 {
                // Long enough that the time of reading the clock does not matter. How long it is does not matter.
                std::thread::sleep(Duration::from_millis(20));
                profiler.step();
            }
        },
    );
    for step in traces[0].steps() {
        let summary = &kept.steps()[step.number() as usize];
        // Both read the counter once, and put it on the wall clock by readings of their own, to half a percent each.
        let (summed, traced) = (summary.duration.as_secs_f64(), step.duration().as_secs_f64());
        assert!((summed / traced - 1.0).abs() < 0.02, "{summed} s, not {traced} s");
    }
}

#[test]
fn the_last_value_of_a_counter_in_the_step_counts_in_every_phase() {
    let (steps, _) = step_summaries(
        |builder| builder.schedule(Schedule::steps(2..=3)),
        |profiler| {
            for step in 0..6_i32 {
                info!(counter.loss = 100.0);
                info!(counter.loss = f64::from(step) / 2.0, counter.signed = -step, other = 5, text = "counter.");
                if step % 2 == 0 {
                    std::thread::scope(|scope| {
                        let dispatch = tracing::dispatcher::get_default(Clone::clone);
                        let other = || info!(counter.even = u64::from(step.unsigned_abs()), "of another thread");
                        scope.spawn(move || tracing::dispatcher::with_default(&dispatch, other));
                    });
                }
                info!(
                    counter.diverged = if step == 1 { f64::NAN } else { f64::NEG_INFINITY },
                    counter.no_number = "text",
                    counter.no = true
                );
                profiler.step();
            }
        },
    );
    assert_eq!(steps.len(), 6);
    for (number, step) in steps.iter().enumerate() {
        let value = number as f64;
        assert_eq!(step.counter("loss"), Some(value / 2.0));
        assert_eq!(step.counter("signed"), Some(-value));
        assert_eq!(step.counter("even"), (number % 2 == 0).then_some(value), "{step:?}");
        let diverged = step.counter("diverged").unwrap();
        assert!(if number == 1 { diverged.is_nan() } else { diverged == f64::NEG_INFINITY });
        assert_eq!(step.counters.len(), if number % 2 == 0 { 4 } else { 3 }, "{step:?}");
    }
}

#[test]
fn counters_are_recorded_as_before() {
    let kept = StepCollector::default();
    let (traces, _) = crate::support::profiled(
        |builder| builder.schedule(Schedule::steps(1..=2)).export(kept.clone()),
        |profiler| {
            for step in 0..4 {
                info!(counter.loss = f64::from(step));
                profiler.step();
            }
        },
    );
    let [loss] = traces[0].counters() else { panic!("{:?}", traces[0].counters()) };
    assert_eq!(loss.samples().iter().map(|&(_, value)| value).collect::<Vec<_>>(), [1.0, 2.0]);
    assert_eq!(
        kept.steps().iter().map(|step| step.counter("loss")).collect::<Vec<_>>(),
        [0.0, 1.0, 2.0, 3.0].map(Some)
    );
}

#[test]
fn a_counter_after_the_last_step_is_not_lost() {
    let (steps, _) = step_summaries(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            profiler.step();
            info!(counter.accuracy = 0.75);
        },
    );
    let [first, rest] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((first.ended, rest.ended, rest.number, rest.counter("accuracy")), (true, false, 1, Some(0.75)));
}

#[test]
fn steps_that_end_with_a_span_have_summaries_too() {
    let (steps, _) = step_summaries(
        |builder| builder.schedule(Schedule::manual()).step_on("train_step"),
        |_| {
            for step in 0..3 {
                let _step = info_span!("train_step").entered();
                info!(counter.loss = f64::from(step));
            }
        },
    );
    assert_eq!(numbers(&steps), [0, 1, 2]);
    assert!(steps.iter().all(|step| step.counter("loss") == Some(step.number as f64)), "{steps:?}");
}

/// An exporter that blocks while a lock is held.
struct Slow(Arc<Mutex<()>>);

impl Exporter for Slow {
    fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
        Ok(vec![])
    }

    fn steps(&mut self, _: &Run) -> Option<Box<dyn StepExporter>> {
        Some(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl StepExporter for Slow {
    fn steps(&mut self, _: &[StepSummary]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        drop(self.0.lock());
        Ok(())
    }
}

#[test]
fn nobody_waits_for_a_slow_exporter_and_what_does_not_fit_is_counted() {
    let (many, gate) = (100_000, Arc::new(Mutex::new(())));
    let (steps, report) = step_summaries(
        |builder| builder.schedule(Schedule::manual()).export(Slow(Arc::clone(&gate))),
        |profiler| {
            let _closed = gate.lock();
            (0..many).for_each(|_| profiler.step());
        },
    );
    let losses = *report.unwrap().losses();
    assert!(losses.steps > 0, "{} steps were taken", steps.len());
    assert_eq!((steps.len() as u64 + losses.steps, losses.total()), (many, losses.steps));
    assert!(steps.windows(2).all(|pair| pair[0].number < pair[1].number && pair[0].end() <= pair[1].start));
}

/// An exporter that panics the first time it is called, and fails each later time.
struct Failing(Arc<AtomicU32>);

impl Exporter for Failing {
    fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
        Ok(vec![])
    }

    fn steps(&mut self, _: &Run) -> Option<Box<dyn StepExporter>> {
        Some(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl StepExporter for Failing {
    fn steps(&mut self, _: &[StepSummary]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        Err(io::Error::other("no more room").into())
    }

    fn finish(&mut self) -> ExportResult {
        Err("and so it ends".into())
    }
}

#[test]
fn a_failure_is_reported_once_and_hurts_nobody_else() {
    let calls = Arc::new(AtomicU32::new(0));
    let (steps, done) = step_summaries(
        |builder| builder.schedule(Schedule::manual()).export(Failing(Arc::clone(&calls))),
        |profiler| {
            while calls.load(Ordering::Relaxed) < 4 {
                profiler.step();
                // The step thread reads every 200 ms, and without a pause the steps would not fit.
                std::thread::sleep(Duration::from_millis(5));
            }
        },
    );
    assert!(!steps.is_empty() && steps.iter().enumerate().all(|(number, step)| step.number == number as u64));
    assert_eq!(
        failures(done),
        ["Failing: panicked: the first time", "Failing: no more room", "Failing: and so it ends"]
    );
}

/// An exporter that panics when its step exporter is asked for.
struct Panicking;

impl Exporter for Panicking {
    fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
        Ok(vec![])
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        panic!("{} {:?}", run.schedule, run.activities)
    }
}

#[test]
fn a_panic_while_a_profiler_is_built_is_a_failure() {
    let (steps, done) = step_summaries(
        |builder| builder.schedule(Schedule::manual()).activities([kernspan::Activity::Host]).export(Panicking),
        Profiler::step,
    );
    assert_eq!(numbers(&steps), [0]);
    assert_eq!(failures(done), ["Panicking: panicked: by hand [Host]"]);
}
