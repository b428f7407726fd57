//! Tests of the schedule and its windows, compared with PyTorch's own profiler: see `fixtures/torch_schedule.py`.

use crate::support::{names, profiled, tree};
use kernspan::{Chrome, Error, Phase, Profiler, Schedule, ScheduleError};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tracing::info_span;

const TORCH: &str = include_str!("../fixtures/torch_schedule.txt");

/// Returns the lines of one kind: the schedule, the words after it, and the whole line.
fn torch_lines(kind: &str) -> impl Iterator<Item = (Schedule, Vec<&'static str>, &'static str)> {
    TORCH.lines().filter_map(move |line| {
        let words: Vec<_> = line.strip_prefix(kind)?.split_whitespace().collect();
        let [skip_first, skip_first_wait, wait, warmup, active, repeat] =
            std::array::from_fn(|index| words[index].parse().unwrap());
        let schedule = Schedule::new().skip_first(skip_first).skip_first_wait(skip_first_wait != 0);
        let schedule = schedule.wait(wait).warmup(warmup).active(active).repeat(repeat);
        Some((schedule, words[6..].to_vec(), line))
    })
}

#[test]
fn every_step_has_the_phase_that_torch_gives_it() {
    let mut checked = 0;
    for (mut schedule, words, line) in torch_lines("phases ") {
        let letter = |phase| match phase {
            Phase::Wait => 'N',
            Phase::Warmup => 'W',
            Phase::Record => 'R',
            Phase::RecordAndSave => 'S',
        };
        let phases: String = (0..24).map(|step| letter(schedule.phase(step))).collect();
        assert_eq!(phases, words[0], "{line}");
        checked += 1;
    }
    assert_eq!(checked, 648);
}

/// Runs a loop whose spans have the number of their step.
fn take_steps(profiler: &Profiler, steps: u64) {
    for step in 0..steps {
        info_span!("work", step).in_scope(|| ());
        profiler.step();
    }
}

#[test]
fn every_run_gives_the_windows_that_torch_gives() {
    let mut checked = 0;
    for (schedule, words, line) in torch_lines("windows ") {
        let steps: u64 = words[0].parse().unwrap();
        let (traces, _) = profiled(
            |builder| builder.schedule(schedule),
            |profiler| {
                take_steps(profiler, steps);
                info_span!("work", step = steps).in_scope(|| ());
            },
        );
        let windows: Vec<_> = traces
            .iter()
            .map(|trace| {
                let numbers: Vec<_> = trace.steps().iter().map(|step| step.number().to_string()).collect();
                // The spans have the same numbers as the steps.
                let spans: Vec<_> = trace.spans().map(|span| span.field("step").unwrap().to_string()).collect();
                assert_eq!(spans, numbers, "{line}");
                numbers.join("+")
            })
            .collect();
        let windows = if windows.is_empty() { "-".to_owned() } else { windows.join(",") };
        assert_eq!(windows, words[1], "{line}");
        checked += 1;
    }
    assert_eq!(checked, 576);
}

#[test]
fn nonsense_is_refused_with_a_clear_message() {
    let refusal = |schedule| Profiler::builder().schedule(schedule).build().unwrap_err();
    let cause = |error| match error {
        Error::Schedule(cause) => cause,
        error => panic!("{error}"),
    };
    assert_eq!(cause(refusal(Schedule::new().active(0))), ScheduleError::NothingActive);
    assert_eq!(cause(refusal(Schedule::new().wait(u64::MAX).warmup(1))), ScheduleError::Overflow);
    assert_eq!(cause(refusal(Schedule::new().active(u64::MAX).repeat(2))), ScheduleError::Overflow);
    assert_eq!(cause(refusal(Schedule::steps(5..5))), ScheduleError::EmptyRange);
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    let reversed = Schedule::steps(9..=3);
    assert_eq!(cause(refusal(reversed)), ScheduleError::EmptyRange);
    assert_eq!(cause(refusal(Schedule::steps(1..9).repeat(2))), ScheduleError::NotACycle);
    let message = refusal(Schedule::new().active(0)).to_string();
    assert_eq!(message, "invalid schedule: active is 0, so no step would ever be recorded: use active(1) or more");
    let message = Profiler::builder().lane_capacity(1).build().unwrap_err().to_string();
    assert_eq!(message, "invalid setting lane_capacity: 1 is less than 64, so that nothing could be recorded");
    let error = refusal(Schedule::new().active(0));
    assert_eq!(format!("{error:?}"), error.to_string(), "the cause is printed once");
    for (setting, builder) in [
        ("lane_capacity", Profiler::builder().lane_capacity(1 << 40)),
        ("live_spans", Profiler::builder().live_spans(usize::MAX)),
    ] {
        let message = builder.build().unwrap_err().to_string();
        assert!(message.starts_with(&format!("invalid setting {setting}: ")), "{message}");
        assert!(message.contains(" is more than "), "{message}");
    }
}

fn windows_of(schedule: Schedule, steps: u64) -> Vec<Vec<u64>> {
    let (traces, _) = profiled(
        |builder| builder.schedule(schedule),
        |profiler| {
            take_steps(profiler, steps);
        },
    );
    traces.iter().map(|trace| trace.steps().iter().map(kernspan::trace::Step::number).collect()).collect()
}

#[test]
fn a_range_is_one_window() {
    assert_eq!(windows_of(Schedule::steps(2..=4), 10), [[2, 3, 4]]);
    assert_eq!(windows_of(Schedule::steps(2..4), 10), [[2, 3]]);
    assert_eq!(windows_of(Schedule::steps(..2), 10), [[0, 1]]);
    assert_eq!(windows_of(Schedule::steps(8..), 10), [[8, 9]]);
    assert_eq!(windows_of(Schedule::steps(20..), 10), [[0_u64; 0]; 0]);
}

#[test]
fn a_function_need_not_know_which_step_is_the_last() {
    let odd_pairs = |step: u64| if step % 4 < 2 { Phase::Record } else { Phase::Wait };
    assert_eq!(windows_of(Schedule::from_fn(odd_pairs), 7), [vec![0, 1], vec![4, 5]]);
    let each = |_| Phase::RecordAndSave;
    assert_eq!(windows_of(Schedule::from_fn(each), 3), [[0], [1], [2]]);
}

#[test]
fn a_function_that_panics_ends_the_recording_and_is_reported() {
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::from_fn(|step| {
            assert!(step < 2, "no more");
            Phase::Record
        }))
        .build()
        .unwrap();
    drop(layer);
    (0..5).for_each(|_| profiler.step());
    assert!(!profiler.is_recording());
    let Error::Run { failures, report, .. } = profiler.finish().unwrap_err() else { panic!() };
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].to_string(), "schedule: panicked: no more");
    assert_eq!(report.windows(), 1);
}

#[test]
fn without_a_schedule_everything_is_recorded() {
    assert_eq!(windows_of(Schedule::always(), 3), [[0, 1, 2]]);
    let (traces, _) = profiled(|builder| builder, |_| info_span!("work").in_scope(|| ()));
    assert!(traces[0].steps().is_empty(), "a run with no step has no steps");
}

#[test]
fn the_close_of_a_span_can_be_the_step() {
    let (traces, _) = profiled(
        |builder| builder.step_on("train_step").schedule(Schedule::new().wait(1).active(2).repeat(1)),
        |profiler| {
            for batch in 0..5_u64 {
                let _step = info_span!("train_step", batch).entered();
                info_span!("forward").in_scope(|| ());
            }
            assert_eq!(profiler.current_step(), 5);
        },
    );
    assert_eq!(tree(&traces[0]), "train_step{batch=1}\n  forward\ntrain_step{batch=2}\n  forward\n");
    assert_eq!(traces[0].steps().iter().map(kernspan::trace::Step::number).collect::<Vec<_>>(), [1, 2]);
    assert!(traces[0].spans().all(|span| span.step().is_some()));
}

#[test]
fn windows_can_be_opened_by_hand() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            info_span!("before").in_scope(|| ());
            assert!(profiler.start() && !profiler.start());
            info_span!("first").in_scope(|| ());
            assert!(profiler.stop() && !profiler.stop());
            info_span!("between").in_scope(|| ());
            {
                let _window = profiler.record();
                assert!(profiler.is_recording());
                info_span!("second").in_scope(|| ());
            }
            info_span!("after").in_scope(|| ());
        },
    );
    assert_eq!(traces.iter().map(|trace| names(trace)).collect::<Vec<_>>(), [["first"], ["second"]]);
    assert_eq!((traces[0].window(), traces[1].window()), (0, 1));
}

#[test]
fn a_window_opened_by_hand_outlives_the_schedules_edges() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::new().wait(2).active(1).repeat(2)),
        |profiler| {
            for step in 0..9_u64 {
                match step {
                    1 => assert!(profiler.start()),
                    4 => assert!(profiler.stop()),
                    _ => {}
                }
                info_span!("work", step).in_scope(|| ());
                profiler.step();
            }
        },
    );
    let steps = |index: usize| {
        traces[index].spans().map(|span| span.field("step").unwrap().as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(traces.len(), 2);
    assert_eq!((steps(0), steps(1)), (vec![1, 2, 3], vec![5]));
    assert!(traces[0].steps()[0].cut().start, "opened in the middle of step 1");
}

#[test]
fn stopping_without_a_schedule_is_for_good() {
    let (traces, _) = profiled(
        |builder| builder,
        |profiler| {
            info_span!("recorded").in_scope(|| ());
            profiler.stop();
            profiler.step();
            info_span!("not recorded").in_scope(|| ());
            profiler.step();
        },
    );
    assert_eq!(traces.iter().map(|trace| names(trace)).collect::<Vec<_>>(), [["recorded"]]);
}

#[test]
fn hundreds_of_windows_follow_each_other_without_a_gap() {
    let (traces, report) = profiled(
        |builder| builder.schedule(Schedule::new().active(1)),
        |profiler| {
            for step in 0..300_u64 {
                info_span!("work", step).in_scope(|| ());
                profiler.step();
            }
        },
    );
    assert!(report.losses().is_empty(), "{}", report.losses());
    // The window that the last step() opened is empty, and left out.
    assert_eq!(traces.len(), 300);
    for (step, trace) in (0..300).zip(&traces) {
        assert_eq!(tree(trace), format!("work{{step={step}}}\n"));
    }
    for pair in traces.windows(2) {
        assert!(pair[0].end() <= pair[1].start(), "{:?} {:?} {:?}", pair[0].start(), pair[0].end(), pair[1].start());
    }
}

#[test]
fn several_threads_may_step() {
    let turns = Arc::new(AtomicU64::new(0));
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::steps(..)),
        |profiler| {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..50 {
                            profiler.step();
                            turns.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
        },
    );
    let numbers: Vec<_> = traces[0].steps().iter().map(kernspan::trace::Step::number).collect();
    assert_eq!(numbers, (0..turns.load(Ordering::Relaxed)).collect::<Vec<_>>());
    assert!(traces[0].steps().windows(2).all(|pair| pair[0].end() == pair[1].start()));
}

#[test]
fn a_step_lasts_from_one_call_to_the_next() {
    let (traces, report) = profiled(
        |builder| builder.schedule(Schedule::steps(1..=2)),
        |profiler| {
            for _ in 0..4 {
                info_span!("work").in_scope(|| ());
                profiler.step();
            }
        },
    );
    let steps = traces[0].steps();
    assert_eq!((steps.len(), traces[0].spans().len()), (2, 2));
    for (step, work) in steps.iter().zip(traces[0].spans()) {
        assert!(step.start() <= work.start() && work.end() <= step.end(), "{step:?}, {:?}", work.start());
    }
    assert_eq!(
        (steps[0].start(), steps[0].end(), steps[1].end()),
        (traces[0].start(), steps[1].start(), traces[0].end())
    );
    assert!(steps.iter().all(|step| !step.cut().any()));
    assert_eq!(
        report.steps().steps().iter().map(|step| step.time).collect::<Vec<_>>(),
        [steps[0].duration(), steps[1].duration()]
    );
}

#[test]
fn thousands_of_short_windows_are_collected_one_by_one() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::new().active(1)),
        |profiler| {
            for _ in 0..5_000 {
                info_span!("work").in_scope(|| ());
                profiler.step();
            }
        },
    );
    assert_eq!(traces.len(), 5_000);
    assert!(traces.iter().all(|trace| names(trace) == ["work"]));
}

#[test]
fn a_counter_after_the_last_step_is_not_forgotten() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::new().active(1)),
        |profiler| {
            info_span!("work").in_scope(|| ());
            profiler.step();
            tracing::info!(counter.validation = 0.5);
        },
    );
    assert_eq!(traces.len(), 2);
    assert_eq!(traces[1].counters()[0].samples()[0].1, 0.5);
}

#[test]
fn a_window_knows_the_step_that_was_not_recorded() {
    let pause = Duration::from_millis(2);
    let unrecorded = |wait: u64| {
        let folder = tempfile::tempdir().unwrap();
        let schedule = Schedule::new().wait(wait).active(1).repeat(1);
        let (traces, report) = profiled(
            |builder| builder.schedule(schedule).export(Chrome::to_dir(folder.path())),
            |profiler| {
                for _ in 0..=wait {
                    std::thread::sleep(pause);
                    profiler.step();
                }
            },
        );
        #[cfg(feature = "read")]
        assert_eq!(kernspan::read::read(&report.files()[0]).unwrap()[0].unrecorded_step(), traces[0].unrecorded_step());
        assert_eq!(report.files().len(), 1);
        traces[0].unrecorded_step()
    };
    // The first step of a run is not like the others, and two are too few.
    assert_eq!(unrecorded(3), None);
    assert!(unrecorded(6).unwrap() >= pause);
}
