//! Spans and events of the program.

use super::{attributes, named, options, sent, sent_with};
use crate::{ids::IdKind, options::GpuSpans, spans::SpanOptions};
use kernspan::trace::{
    Level, SpanId, Value,
    sample::{
        add_event, at, awkward_trace, gpu_trace, operations_trace, set_caller, set_fields, set_follows, set_parent,
        set_previous,
    },
};

#[test]
fn the_tree_of_a_step_is_that_of_its_spans() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace()] {
        let sent = sent(&trace, GpuSpans::Aggregate);
        let run = options(&trace, GpuSpans::Aggregate).run;
        // The stray kernel is in no step, so that the window has a trace, too.
        assert_eq!(sent.len(), trace.steps().len() + 1 + trace.spans().len());
        for step in trace.steps() {
            let home = run.step(step.number()).unwrap();
            let root = &sent[&home.root.to_bytes()[..]];
            assert_eq!(root.name, format!("step {}", step.number()));
            assert_eq!(
                (root.trace_id.as_slice(), root.parent_span_id.as_slice()),
                (&home.trace.to_bytes()[..], &[][..])
            );
            let times = (step.start().as_unix_nanos(), step.end().as_unix_nanos());
            assert_eq!((root.start_time_unix_nano, root.end_time_unix_nano), times);
            let [link] = &root.links[..] else { panic!("{:?}", root.links) };
            assert_eq!(
                (link.trace_id.as_slice(), link.span_id.as_slice()),
                (&run.trace.to_bytes()[..], &run.span.to_bytes()[..])
            );
        }
        for span in trace.spans() {
            let home = run.step(span.step().unwrap().number()).unwrap();
            let key = |id: SpanId| home.trace.span(IdKind::Span, id.index() as u64).to_bytes();
            let found = &sent[&key(span.id())[..]];
            assert_eq!((found.name.as_str(), found.kind), (span.name(), 1));
            let parent = span.parent().map_or(home.root.to_bytes(), |parent| key(parent.id()));
            assert_eq!(
                (found.trace_id.as_slice(), found.parent_span_id.as_slice()),
                (&home.trace.to_bytes()[..], &parent[..])
            );
            let times = (span.start().as_unix_nanos(), span.end().as_unix_nanos());
            assert_eq!((found.start_time_unix_nano, found.end_time_unix_nano), times);
            let found = attributes(&found.attributes);
            assert_eq!(found["thread.id"], span.track().thread().as_u64().to_string());
            assert_eq!(found["thread.name"], format!("{:?}", span.track().thread_name()));
            assert_eq!(found["kernspan.self_ns"], span.self_time().as_nanos().to_string());
        }
    }
}

#[test]
fn spans_are_children_of_their_callers_and_have_links_to_the_enters_before() {
    let mut trace = gpu_trace();
    // In a step, `forward` comes before `backward`.
    set_caller(&mut trace, 1, Some(2));
    set_caller(&mut trace, 2, None);
    set_previous(&mut trace, 2, 1);
    set_previous(&mut trace, 5, 2);
    let run = options(&trace, GpuSpans::Off).run;
    let sent = sent(&trace, GpuSpans::Off);
    let homes = [5, 6].map(|step| run.step(step).unwrap());
    let keys = [1, 2, 5].map(|span| homes[span / 3].trace.span(IdKind::Span, span as u64).to_bytes());
    let [forward, backward, later] = keys.map(|key| &sent[&key[..]]);
    assert_eq!((forward.parent_span_id.as_slice(), forward.links.len()), (&keys[1][..], 0));
    assert_eq!(backward.parent_span_id, homes[0].root.to_bytes());
    for (span, previous) in [(backward, keys[0]), (later, keys[1])] {
        let [link] = &span.links[..] else { panic!("{:?}", span.links) };
        assert_eq!(
            (link.span_id.as_slice(), link.trace_id.as_slice()),
            (&previous[..], &homes[0].trace.to_bytes()[..])
        );
        assert_eq!(attributes(&link.attributes)["kernspan.link"], "\"previous\"");
    }
}

#[test]
fn calls_have_links_to_what_they_follow_from() {
    let mut trace = gpu_trace();
    set_follows(&mut trace, 2, &[0, 1]);
    set_previous(&mut trace, 5, 2);
    let run = options(&trace, GpuSpans::Off).run;
    let sent = sent(&trace, GpuSpans::Off);
    let homes = [5, 6].map(|step| run.step(step).unwrap());
    let key = |span: usize| homes[span / 3].trace.span(IdKind::Span, span as u64).to_bytes();
    let links = |span| -> Vec<(Vec<u8>, String)> {
        let links = sent[&key(span)[..]].links.iter();
        links.map(|link| (link.span_id.clone(), attributes(&link.attributes)["kernspan.link"].clone())).collect()
    };
    let follows = |span| (key(span).to_vec(), "\"follows_from\"".to_owned());
    assert_eq!(links(2), [follows(0), follows(1)]);
    // A later enter of the call does not repeat them.
    assert_eq!(links(5), [(key(2).to_vec(), "\"previous\"".to_owned())]);
}

#[test]
fn fields_keep_their_types() {
    let mut trace = gpu_trace();
    let text = Value::Str("snow ☃ in many words".into());
    let fields = [
        ("yes", Value::Bool(true)),
        ("negative", Value::I64(-3)),
        ("count", Value::U64(3)),
        ("huge", Value::U64(u64::MAX)),
        ("half", Value::F64(0.5)),
        ("text", text),
    ];
    set_fields(&mut trace, 1, &fields);
    let limited = SpanOptions { text_limit: 6, ..options(&trace, GpuSpans::Off) };
    for (options, text) in [(options(&trace, GpuSpans::Off), "snow ☃ in many words"), (limited, "snow ")] {
        let sent = sent_with(&trace, &options);
        let forward =
            named(&sent, "forward").into_iter().find(|span| span.start_time_unix_nano == at(10).as_unix_nanos());
        let found = attributes(&forward.unwrap().attributes);
        let found: Vec<_> = fields.iter().map(|(name, _)| found[*name].as_str()).collect();
        assert_eq!(found, ["true", "-3", "3", "\"18446744073709551615\"", "0.5f", &format!("{text:?}")]);
    }
}

#[test]
fn events_are_in_their_spans_and_errors_mark_them() {
    let mut trace = gpu_trace();
    let fields = [("message", Value::Str("it broke".into())), ("code", Value::I64(3))];
    // One in `forward`, many in no span but in the second step.
    add_event(&mut trace, Some(1), at(12), Level::Error, &fields);
    (0..200).for_each(|_| add_event(&mut trace, None, at(150), Level::Error, &fields));
    let sent = sent(&trace, GpuSpans::Off);
    let forward = named(&sent, "forward").into_iter().find(|span| !span.events.is_empty()).unwrap();
    assert_eq!(
        (forward.events[0].name.as_str(), forward.events[0].time_unix_nano),
        ("it broke", at(12).as_unix_nanos())
    );
    assert_eq!(attributes(&forward.events[0].attributes)["code"], "3");
    let status = forward.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (2, "it broke"));
    let step = named(&sent, "step 6")[0];
    assert_eq!((step.events.len(), step.dropped_events_count), (128, 72));
    assert!(named(&sent, "train_step").iter().all(|span| span.status.is_none()));
}

#[test]
fn a_span_across_the_edge_of_a_step_is_linked() {
    let mut trace = gpu_trace();
    // `forward` of the second step is nested in `train_step` of the first.
    set_parent(&mut trace, 4, 0);
    let sent = sent(&trace, GpuSpans::Off);
    let run = options(&trace, GpuSpans::Off).run;
    let (first, second) = (run.step(5).unwrap(), run.step(6).unwrap());
    let forward = &sent[&second.trace.span(IdKind::Span, 4).to_bytes()[..]];
    assert_eq!(forward.parent_span_id, second.root.to_bytes());
    assert_eq!(forward.links[0].trace_id, first.trace.to_bytes());
    assert_eq!(forward.links[0].span_id, first.trace.span(IdKind::Span, 0).to_bytes());
}
