use super::{Baseline, BaselineError, BaselineRun};
use crate::{
    counts::CountKind,
    sample::{Kind, Window},
};
use kernspan::Trace;

fn window(number: u32) -> Trace {
    Window::numbered(number).trace()
}

fn run(baseline: &Baseline) -> &BaselineRun {
    assert_eq!(baseline.runs.len(), 1);
    &baseline.runs[0]
}

#[test]
fn windows_of_a_process_are_one_run() {
    let windows = [window(0), window(1)];
    let baseline = Baseline::of(&windows);
    let run = run(&baseline);
    assert_eq!((run.program.as_str(), run.steps, run.kept()), ("train", 4, 4));
    let paths: Vec<_> = (0..run.spans.len()).map(|span| run.path(span).join(" > ")).collect();
    assert_eq!(paths, ["train_step", "train_step > forward", "train_step > backward", BaselineRun::OUTSIDE]);
    assert_eq!(run.spans[1].host.get(3), 30_000.0);
    assert_eq!(run.spans[1].gpu.get(3), 20_000.0);
    let kernels = run.count(CountKind::Kernels);
    assert_eq!((kernels.min, kernels.max, kernels.sum, kernels.steps), (3, 3, 12, 4));
    assert_eq!(run.peaks.values().collect::<Vec<_>>(), [&5096]);
    assert_eq!(run.machine.to_string(), "host (NVIDIA H200)");
    assert!(!baseline.findings.is_empty());
}

#[test]
fn a_process_with_an_old_number_is_another_run() {
    let windows = [window(0), window(1), window(0)];
    assert_eq!(Baseline::of(&windows).runs.len(), 2);
}

#[test]
fn a_window_without_steps_changes_nothing() {
    let mut window = Window::new();
    window.events.retain(|event| event.kind != Kind::Step);
    let baseline = Baseline::of([&window.trace()]);
    assert_eq!((run(&baseline).kept(), run(&baseline).spans.len()), (0, 0));
}

#[test]
fn of_very_many_steps_some_are_kept_evenly() {
    let windows: Vec<_> = (0..200).map(window).collect();
    let baseline = Baseline::of(&windows);
    let run = run(&baseline);
    assert_eq!((run.steps, run.looked_at, run.stride, run.kept()), (400, 400, 4, 100));
    assert_eq!(run.count(CountKind::Kernels).steps, 400);
    assert!((0..100).all(|step| run.spans[2].host.get(step) == 40_000.0));
}

#[test]
fn a_path_that_comes_later_has_zeros_before() {
    let mut second = Window::numbered(1);
    second.of(Kind::Span, "forward").into_iter().for_each(|span| span.name = "other");
    let baseline = Baseline::of(&[window(0), second.trace(), window(2)]);
    let run = run(&baseline);
    let of = |name: &str| run.spans.iter().find(|span| span.name == name).unwrap();
    let hosts = |name: &str| (0..6).map(|step| of(name).host.get(step) / 1000.0).collect::<Vec<_>>();
    assert_eq!(hosts("other"), [0.0, 0.0, 30.0, 30.0, 0.0, 0.0]);
    assert_eq!(hosts("forward"), [30.0, 30.0, 0.0, 0.0, 30.0, 30.0]);
    for name in ["other", "forward"] {
        let calls = of(name).count(CountKind::Calls);
        assert_eq!((calls.min, calls.max, calls.steps), (0, 1, 6), "{name}");
    }
}

#[test]
fn a_baseline_is_read_as_it_was_written() {
    let baseline = Baseline::of(&[window(0), window(1), window(0)]);
    let json = baseline.to_json();
    assert_eq!(Baseline::from_json(json.as_bytes()).unwrap(), baseline);
    assert!(json.len() < 8_000, "{} bytes", json.len());
}

#[test]
fn something_else_is_said_to_be_no_baseline() {
    let error = |json: &str| Baseline::from_json(json.as_bytes()).unwrap_err().to_string();
    assert_eq!(error("{}"), "not a baseline: it has no format");
    assert!(error("[").starts_with("not a baseline: "), "{}", error("["));
    assert!(matches!(Baseline::from_json(b"{\"format\": 9}"), Err(BaselineError::Format { found: 9 })));
    let circle = r#"{"format": 1, "runs": [{"spans": [{"parent": 0, "name": "a"}]}]}"#;
    assert_eq!(error(circle), "not a baseline: a span is called from a later one");
    let absurd = r#"{"format": 1, "runs": [{"durations": [-1, 1e30], "spans": [{"host": [-5]}]}]}"#;
    let clamped = Baseline::from_json(absurd.as_bytes()).unwrap();
    assert_eq!(clamped.runs[0].durations.get(0), 0.0);
}

#[test]
fn files_of_earlier_versions_are_read_and_written_as_they_were() {
    let stored = include_str!("../../tests/fixtures/baseline.json").trim_end();
    let baseline = Baseline::from_json(stored.as_bytes()).unwrap();
    assert_eq!((baseline.runs.len(), baseline.steps(), baseline.findings.len()), (3, 8, 6));
    assert_eq!(baseline.to_json(), stored);
}
