//! Tests of the Firefox Profiler's format.

use super::Firefox;
use crate::trace::{
    Span, Trace, Work,
    sample::{awkward_trace, gpu_trace, stacks_trace},
};
use serde_json::Value as Json;

fn profile(trace: &Trace) -> Json {
    let mut bytes = Vec::new();
    Firefox::write(trace, &mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn list<'a>(table: &'a Json, key: &str) -> &'a [Json] {
    table[key].as_array().unwrap()
}

/// The frames of a stack, outermost first, each with its file and line.
fn frames(thread: &Json, mut stack: Option<u64>) -> Vec<String> {
    let mut frames = Vec::new();
    let text = |index: &Json| index.as_u64().map(|index| thread["stringArray"][index as usize].as_str().unwrap());
    while let Some(index) = stack {
        let frame = thread["stackTable"]["frame"][index as usize].as_u64().unwrap() as usize;
        let function = thread["frameTable"]["func"][frame].as_u64().unwrap() as usize;
        let (name, file) = (&thread["funcTable"]["name"][function], &thread["funcTable"]["fileName"][function]);
        let line = thread["frameTable"]["line"][frame].as_u64();
        frames.push(format!("{} {:?} {line:?}", text(name).unwrap(), text(file)));
        stack = thread["stackTable"]["prefix"][index as usize].as_u64();
    }
    frames.reverse();
    frames
}

#[test]
fn threads_have_the_samples_and_spans_of_the_trace() {
    let trace = stacks_trace();
    let profile = profile(&trace);
    let threads = list(&profile, "threads");
    assert_eq!(threads.len(), trace.tracks().len() + trace.streams().len());
    for (thread, track) in threads.iter().zip(trace.tracks()) {
        assert_eq!(thread["name"], track.thread_name());
        let samples: Vec<_> = trace.stack_samples().filter(|it| it.track().thread() == track.thread()).collect();
        assert_eq!(thread["samples"]["length"], samples.len());
        for (index, sample) in samples.iter().enumerate() {
            let found = frames(thread, thread["samples"]["stack"][index].as_u64());
            let text = |it: &crate::trace::StackFrame| format!("{} {:?} {:?}", it.function(), it.file(), it.line());
            let mut expected: Vec<_> = sample.stack().map(text).collect();
            expected.reverse();
            expected.extend(sample.is_waiting().then(|| "[waiting] None None".to_owned()));
            assert_eq!(found, expected);
            let time = thread["samples"]["time"][index].as_f64().unwrap();
            assert_eq!((time * 1e6).round() as u128, sample.at().since(trace.start()).as_nanos());
        }
        let names: Vec<_> = trace.spans().filter(|it| it.track() == track).map(Span::name).collect();
        let found: Vec<_> = list(&thread["markers"], "name")
            .iter()
            .map(|name| thread["stringArray"][name.as_u64().unwrap() as usize].as_str().unwrap())
            .collect();
        assert_eq!(found, names);
    }
    let work: usize = threads[2..].iter().map(|thread| list(&thread["markers"], "name").len()).sum();
    assert_eq!(work, trace.work().map(Work::id).count());
    assert_eq!(threads[0]["markers"]["data"][1]["path"], "train_step > forward");
    let facts = "waits of other processes were not sampled; lost 3: 3 stack_samples";
    assert_eq!(profile["meta"]["arguments"], facts);
}

/// Tables whose columns differ in length make the profiler fail.
#[test]
fn all_columns_of_a_table_are_equally_long() {
    for trace in [stacks_trace(), gpu_trace(), awkward_trace(), Trace::default()] {
        for thread in list(&profile(&trace), "threads") {
            for table in thread.as_object().unwrap().values().filter(|table| table["length"].is_u64()) {
                let columns = table.as_object().unwrap().iter().filter_map(|(key, it)| Some((key, it.as_array()?)));
                for (key, column) in columns {
                    assert_eq!(column.len() as u64, table["length"].as_u64().unwrap(), "{key}");
                }
            }
        }
    }
}
