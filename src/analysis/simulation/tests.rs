use super::{Item, Simulation, nanos};
use crate::trace::{
    Trace,
    sample::{gpu_trace, spans_trace},
};
use std::time::Duration;

/// Returns the time of the steps that are looked at, as recorded: on the host, and on the GPU.
fn recorded(trace: &Trace, simulation: &Simulation<'_>) -> (Duration, Duration) {
    let step = |index: usize| &trace.steps()[simulation.steps[index].index()];
    let (first, last) = (step(0), step(simulation.steps.len() - 1));
    let tasks = || simulation.tasks.iter().filter(|task| task.measured);
    let began = tasks().map(|task| task.start).min().unwrap();
    let ended = tasks().map(|task| task.end).max().unwrap();
    (last.end().since(first.start()), ended.since(began))
}

/// Whether two times are the same to a fiftieth.
fn is_near(one: Duration, other: Duration) -> bool {
    one.abs_diff(other) * 50 <= other
}

#[test]
fn without_steps_or_work_there_is_nothing_to_run() {
    assert!(Simulation::of(&Trace::default()).is_none());
    assert!(Simulation::of(&spans_trace(&[("train_step", None, 0, 10)])).is_none());
}

#[test]
fn what_is_removed_saves_time_and_what_depends_on_it_moves() {
    let trace = gpu_trace();
    let simulation = Simulation::of(&trace).unwrap();
    let unchanged = simulation.run(&simulation.recorded());
    let mut costs = simulation.recorded();
    (0..simulation.items.len()).for_each(|item| costs.set_item(item, 0));
    (0..simulation.tasks.len()).for_each(|task| costs.set_task(task, 0));
    let nothing = simulation.run(&costs);
    assert!(nothing < unchanged, "{nothing:?} {unchanged:?}");
}

/// Items of a thread follow each other without gaps, so that no time is lost.
#[test]
fn items_cover_the_time_of_their_threads() {
    let trace = gpu_trace();
    let simulation = Simulation::of(&trace).unwrap();
    for items in simulation.items.chunk_by(|one, next| one.thread == next.thread) {
        assert!(items.windows(2).all(|pair| pair[0].end == pair[1].start), "{items:#?}");
        let sum: u64 = items.iter().map(Item::nanos).sum();
        assert_eq!(nanos(items[0].start, items[items.len() - 1].end), sum);
    }
}

#[cfg(all(feature = "cuda", target_os = "linux"))]
#[test]
fn windows_take_as_long_as_they_were_recorded() {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut run = 0;
    for folder in ["gpu", "faults"] {
        for file in std::fs::read_dir(fixtures.join(folder)).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|extension| extension != "kernspan") {
                continue;
            }
            let trace = crate::replay(std::fs::File::open(&file).unwrap()).unwrap();
            let simulation = Simulation::of(&trace).unwrap();
            let (host, gpu) = recorded(&trace, &simulation);
            let steps: Duration = simulation.step_times(&simulation.recorded()).into_iter().sum();
            let recorded = host.max(gpu);
            assert!(is_near(steps, recorded), "{}: {steps:?}, recorded {recorded:?}", file.display());
            println!("{}: typical latencies {:.2} %", file.display(), 100.0 * simulation.error());
            run += 1;
        }
    }
    assert_eq!(run, 37);
}

#[test]
fn the_host_is_as_fast_as_the_step_that_was_not_recorded_says() {
    let mut trace = gpu_trace();
    let plain = Simulation::of(&trace).unwrap();
    let step = plain.run(&plain.costs());
    let at = |trace: &mut Trace, part: f64| {
        trace.set_unrecorded_step(step.mul_f64(part));
        let simulation = Simulation::of(trace).unwrap();
        (simulation.host, simulation.run(&simulation.costs()))
    };
    for part in [0.8, 0.9, 1.2] {
        let (host, found) = at(&mut trace, part);
        assert!((host.unwrap() < 1.0) == (part < 1.0), "{part}: {host:?}");
        let ratio = found.as_secs_f64() / step.mul_f64(part).as_secs_f64();
        assert!((0.96..1.04).contains(&ratio), "{part}: {ratio}");
    }
    // A difference within the noise says nothing, and no host explains a step of no time.
    assert_eq!(at(&mut trace, 1.01), (Some(1.0), step));
    assert_eq!(at(&mut trace, 0.0001), (None, step));
}
