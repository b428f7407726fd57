//! Functions with known shares of the time, and the lines that were in them.

use super::{HERTZ, check_shares, compute, cpu_time, frame, is_sampled, record, take_turns};
use kernspan::{Samples, trace::StackSample};
use std::{thread, time::Duration};
use tracing::info_span;

/// Functions that work until their thread has run for so long.
type Functions = [fn(Duration); 3];

macro_rules! work {
    ($name:ident, $inline:ident) => {
        #[inline($inline)]
        fn $name(until: Duration) {
            while cpu_time() < until {
                compute();
            }
        }
    };
}

work!(called_sixty, never);
work!(called_thirty, never);
work!(called_ten, never);
work!(inlined_sixty, always);
work!(inlined_thirty, always);
work!(inlined_ten, always);

#[inline(never)]
fn recursive(depth: u32, function: fn(Duration), until: Duration) {
    match depth {
        0 => function(until),
        _ => recursive(depth - 1, function, until),
    }
    // Not a tail call.
    std::hint::black_box(depth);
}

#[test]
fn functions_have_their_shares_of_the_samples() {
    let trace = record(Samples::default().hertz(HERTZ), || {
        let called: Functions = [called_sixty, called_thirty, called_ten];
        // Each inlined into a closure.
        let inlined: Functions =
            [|until| inlined_sixty(until), |until| inlined_thirty(until), |until| inlined_ten(until)];
        let recursive: Functions = [
            |until| recursive(40, called_sixty, until),
            |until| recursive(7, called_thirty, until),
            |until| recursive(100, called_ten, until),
        ];
        let spawn = |name: &str, functions| {
            thread::Builder::new().name(name.to_owned()).spawn(move || take_turns(functions)).unwrap()
        };
        let threads = [spawn("called", called), spawn("inlined", inlined), spawn("recursive", recursive)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    if !is_sampled(&trace) {
        return;
    }
    let called = ["called_sixty", "called_thirty", "called_ten"];
    check_shares(&trace, "called", called);
    check_shares(&trace, "inlined", ["inlined_sixty", "inlined_thirty", "inlined_ten"]);
    check_shares(&trace, "recursive", called);
    let depth =
        |sample: StackSample<'_>| sample.stack().filter(|frame| frame.function().ends_with("recursive")).count();
    let of = |thread: &'static str| trace.stack_samples().filter(move |sample| sample.track().thread_name() == thread);
    for sample in of("recursive").filter(|sample| !sample.is_truncated()) {
        let expected = [("called_sixty", 41), ("called_thirty", 8), ("called_ten", 101)];
        for (function, calls) in expected.into_iter().filter(|(function, _)| frame(sample, function).is_some()) {
            assert_eq!(depth(sample), calls, "{function}");
        }
    }
    let truncated = trace.stack_samples().filter(|sample| sample.is_truncated()).count();
    let all = trace.stack_samples().count();
    assert!(truncated * 100 <= all, "{truncated} of {all}");
    let inlined: Vec<_> = of("inlined").filter_map(|sample| frame(sample, "inlined_sixty")).collect();
    assert!(inlined.iter().all(|frame| frame.is_inlined()));
}

#[test]
fn lines_are_those_of_the_source() {
    let before = line!();
    #[inline(never)]
    fn two_lines(until: Duration) {
        while cpu_time() < until {
            compute();
        }
    }
    let after = line!();
    let mut call = 0;
    let trace = record(Samples::default().hertz(HERTZ), || {
        let until = cpu_time() + Duration::from_millis(500);
        info_span!("work").in_scope(|| {
            call = line!() + 1;
            two_lines(until);
        });
    });
    if !is_sampled(&trace) {
        return;
    }
    let mut found = 0;
    for sample in trace.stack_samples().filter(|sample| !sample.is_waiting()) {
        let frames: Vec<_> = sample.stack().collect();
        let Some(at) = frames.iter().position(|frame| frame.function().ends_with("two_lines")) else { continue };
        found += 1;
        let line = frames[at].line().unwrap();
        assert!(before < line && line < after, "{line} is not from {before} to {after}");
        assert!(frames[at].file().unwrap().ends_with("tests/sampling/shares.rs"));
        assert_eq!(frames[at + 1].line(), Some(call), "{:?}", frames[at + 1]);
        assert_eq!(sample.span().unwrap().name(), "work");
    }
    assert!(found > 500, "{found}");
}
