use super::StepSamples;
use crate::{
    counts::CountKind,
    sample::{Kind, Window},
};
use kernspan::analysis::Analysis;
use std::time::Duration;

fn samples(window: &Window) -> StepSamples {
    StepSamples::of(&Analysis::of(&window.trace()))
}

#[test]
fn each_path_has_a_sample_of_each_step() {
    let samples = samples(&Window::new());
    let paths: Vec<_> = samples.paths.iter().map(|path| (path.parent, &*path.name)).collect();
    assert_eq!(paths, [(None, "train_step"), (Some(0), "forward"), (Some(0), "backward")]);
    assert_eq!(samples.durations, [Duration::from_micros(100); 2]);
    assert_eq!(samples.outside, [Duration::from_micros(10); 2]);
    for step in 0..2 {
        let [outer, forward, backward] = [0, 1, 2].map(|path| samples.of_path(path)[step]);
        assert_eq!([outer, forward, backward].map(|sample| sample.host.as_micros()), [20, 30, 40]);
        assert_eq!([outer, forward, backward].map(|sample| sample.gpu.as_micros()), [4, 20, 50]);
        assert_eq!(outer.counts.0, [1, 0, 1, 4000, 0, 0, 0, 0, 0, 0]);
        assert_eq!(forward.counts.0, [1, 1, 0, 0, 0, 1, 4096, 0, 0, 0]);
        assert_eq!(backward.counts.0, [1, 2, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(samples.totals[step].0, [3, 3, 1, 4000, 1, 1, 4096, 0, 0, 0]);
    }
    // Each moment of a step is on the critical path once, from the first call on, and to the end of its work.
    for step in 0..2 {
        let of_paths = (0..3).map(|path| samples.of_path(path)[step]).chain([samples.unattributed[step]]);
        let exposed: Duration = of_paths.map(|sample| sample.exposed_host + sample.exposed_gpu).sum();
        let exposed = exposed + samples.exposed_outside[step];
        assert!((98..=105).contains(&exposed.as_micros()), "{exposed:?}");
    }
    let kernels: Vec<_> = samples.kernels.iter().map(|(shape, launches)| (&*shape.name, &launches[..])).collect();
    assert_eq!(kernels, [("gemm", &[2, 2][..]), ("node", &[1, 1])]);
}

#[test]
fn work_of_no_span_is_kept_apart() {
    let mut window = Window::new();
    window.of(Kind::Kernel, "forward").into_iter().for_each(|work| work.span = 0);
    window.of(Kind::Call, "forward").into_iter().for_each(|call| call.span = 0);
    window.events.iter_mut().filter(|event| event.row == Window::MAIN && event.span == 0).for_each(|event| {
        if event.kind == Kind::Call {
            event.row = Window::DEVICE;
        }
    });
    let samples = samples(&window);
    assert_eq!(samples.of_path(1)[0].gpu, Duration::ZERO);
    assert_eq!(samples.unattributed[0].gpu, Duration::from_micros(20));
    assert_eq!(samples.totals[0].0[CountKind::Kernels as usize], 3);
}

#[test]
fn time_on_other_threads_is_kept_apart() {
    let mut window = Window::new();
    window.of(Kind::Span, "backward").into_iter().for_each(|span| {
        (span.row, span.caller) = (7777, span.span - 2);
    });
    let samples = samples(&window);
    let background = samples.paths.iter().position(|path| path.name == "backward").unwrap();
    assert_eq!(samples.paths[background].parent, Some(0));
    assert_eq!(samples.of_path(background)[0].background, Duration::from_micros(40));
    assert_eq!(samples.of_path(background)[0].host, Duration::ZERO);
    assert_eq!(samples.of_path(0)[0].host, Duration::from_micros(60));
    assert_eq!(samples.of_path(background)[0].counts.0[CountKind::Calls as usize], 1);
}

#[test]
fn deep_and_many_paths_are_bounded() {
    let mut window = Window::empty(500.0);
    window.step(0.0, 450.0);
    window.step(450.0, 500.0);
    for depth in 0..200_u32 {
        let at = f64::from(depth);
        window.span("f", u64::from(depth) + 1, at, 401.0 - at);
    }
    let samples = samples(&window);
    assert_eq!(samples.paths.len(), 64);
    assert!(samples.left_out > 0);
    assert_eq!(samples.of_path(63)[0].counts.0[CountKind::Calls as usize], 137);
    // The time of the 64th span with all that is nested in it.
    assert_eq!(samples.of_path(63)[0].host, Duration::from_micros(401 - 2 * 63));
}

#[test]
fn floating_point_operations_are_those_that_are_stated_or_nested() {
    let mut window = Window::new();
    window.of(Kind::Span, "forward").into_iter().for_each(|span| span.flops = Some(100));
    let nested = samples(&window);
    let flops = |samples: &StepSamples| {
        let of_path = |path: usize| samples.of_path(path)[1].counts.0[CountKind::Flops as usize];
        ([0, 1, 2].map(of_path), samples.totals[1].0[CountKind::Flops as usize])
    };
    assert_eq!(flops(&nested), ([100, 100, 0], 100));
    // A span that states its own number has that.
    window.of(Kind::Span, "train_step").into_iter().for_each(|span| span.flops = Some(7));
    assert_eq!(flops(&samples(&window)), ([7, 100, 0], 7));
}

#[test]
fn a_window_without_steps_has_no_samples() {
    let mut window = Window::new();
    window.events.retain(|event| event.kind != Kind::Step);
    assert_eq!(samples(&window).durations, []);
}
