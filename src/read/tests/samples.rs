//! Sampled stacks are the same after they were written and read.

use super::{check, read_back, written};
use crate::{
    read::from_bytes,
    trace::{
        Trace,
        sample::{SampledStack, add_stack, frame, gpu_trace, inlined, sample_stacks, stacks_trace},
    },
};
use proptest::prelude::*;

#[test]
fn sampled_stacks_are_read_back() {
    let trace = stacks_trace();
    let back = read_back(&trace);
    assert_eq!(back.stack_sampling(), trace.stack_sampling());
    assert_eq!((back.losses().stack_samples, back.losses()), (3, trace.losses()));
    check("stacks", &trace);
    assert!(read_back(&gpu_trace()).stack_sampling().is_none());
    let mut refused = gpu_trace();
    sample_stacks(&mut refused, 99, 0, Some("the kernel \"refuses\"\n"));
    assert_eq!(read_back(&refused).stack_sampling(), refused.stack_sampling());
}

#[test]
fn metadata_of_the_user_is_not_taken_for_samples() {
    let with = |mut trace: Trace| {
        let user = ["samples", "stackFrames"].map(|key| (key.to_owned(), "60000".to_owned()));
        trace.metadata = std::sync::Arc::new(crate::trace::Metadata { user: user.into(), ..trace.metadata().clone() });
        trace
    };
    for trace in [with(gpu_trace()), with(stacks_trace())] {
        let back = read_back(&trace);
        assert_eq!(back.metadata().user, trace.metadata().user);
        assert_eq!(back.stack_sampling(), trace.stack_sampling());
    }
    // As files were written before samples had these names.
    let old = r#"{"kernspan_version": "0.1.0", "samples": "60000", "traceEvents": []}"#;
    let old = from_bytes(old.as_bytes()).unwrap().remove(0);
    assert_eq!(old.metadata().user.iter().next().unwrap().1, "60000");
}

#[test]
fn damaged_samples_are_counted_and_the_rest_is_read() {
    let trace = stacks_trace();
    let text = String::from_utf8(written(&trace, |chrome| chrome)).unwrap();
    let samples = |text: &str| {
        let back = from_bytes(text.as_bytes()).unwrap().remove(0);
        (back.stack_samples().count(), back.losses().unread)
    };
    assert_eq!(samples(&text), (135, 0));
    // A sample on a thread that does not exist, and one in a span that does not.
    assert_eq!(samples(&text.replacen(r#"{"name":"waiting","tid":1001"#, r#"{"name":"waiting","tid":7"#, 1)), (134, 1));
    assert_eq!(samples(&text.replacen(r#""External id":2}"#, r#""External id":200}"#, 1)), (134, 1));
    // The root of most stacks has no frame: it is not read, nor is anything inside it.
    let (left, unread) = samples(&text.replacen(r#""frame":0}"#, r#""frame":99}"#, 1));
    assert!(left == 15 && unread > 120, "{left} samples left, {unread} unread");
    for damage in [r#""samples":7,"#, r#""samples":[{}],"#, r#""samples":null,"#] {
        let begin = text.find(r#""samples":["#).unwrap();
        let end = begin + text[begin..].find("],\n").unwrap() + 3;
        assert_eq!(samples(&format!("{}{damage}\n{}", &text[..begin], &text[end..])).0, 0);
    }
}

proptest! {
    #[test]
    fn any_stacks_are_read_back(
        names in prop::collection::vec(
            (".*", prop::option::of(".*"), prop::option::of(any::<u32>()), ".*", any::<bool>()),
            1..6,
        ),
        samples in prop::collection::vec(
            (0_u64..1_000_000, any::<u64>(), 0_usize..2, 0_usize..7, prop::collection::vec(0_usize..6, 0..8), 0_u8..16),
            0..30,
        ),
        (hertz, lost, problem) in (any::<u32>(), any::<u64>(), prop::option::of(".*")),
    ) {
        let frames: Vec<_> = names.iter().map(|(function, file, line, library, is_inlined)| {
            let frame = if *is_inlined { inlined(function, "", library) } else { frame(function, "", library) };
            crate::trace::StackFrame { file: file.clone(), line: *line, ..frame }
        }).collect();
        let mut trace = gpu_trace();
        sample_stacks(&mut trace, hertz, lost, problem.as_deref());
        for (micros, nanos, track, span, stack, bits) in &samples {
            add_stack(&mut trace, &SampledStack {
                micros: *micros,
                nanos: *nanos,
                track: *track,
                span: Some(*span).filter(|span| *span < 6),
                stack: stack.iter().map(|frame| &frames[frame % frames.len()]).collect(),
                waiting: bits & 1 > 0,
                at_edge: bits & 2 > 0,
                truncated: bits & 4 > 0,
                pool: bits & 8 > 0 && *span < 6,
            });
        }
        let back = read_back(&trace);
        prop_assert_eq!(back.stack_sampling(), trace.stack_sampling());
        prop_assert_eq!(back.losses().unread, 0);
    }
}
