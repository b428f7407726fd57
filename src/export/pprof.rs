//! pprof's format: `profile.proto`, compressed.

use super::exporter::{ExportResult, Exporter};
use crate::{
    analysis::Analysis,
    file,
    trace::{Span, StackNodeId, Trace},
};
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use rustc_hash::FxHashMap;
use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
};

/// An exporter of sampled stacks for [pprof](https://github.com/google/pprof), which draws graphs and flame graphs, and
/// for the many services that read its format.
///
/// ```no_run
/// # use kernspan::{Profiler, export::Pprof};
/// let (layer, profiler) = Profiler::builder().export(Pprof::to_dir("runs/mnist")).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// Each window is a file, `{host}_{pid}.{time}.pb.gz`, and none is written if nothing was sampled. It has the number of
/// samples, the time on the CPU, which pprof shows by default, and the time that threads waited
/// (`-sample_index=waiting`).
///
/// A sample has three labels: `thread`, `span`, which is the innermost span, and `spans`, the path to it. So
/// `go tool pprof -tagfocus=span=forward FILE` shows one span, and `-tagroot=spans` the spans above the functions.
#[derive(Clone, Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Pprof {
    folder: PathBuf,
}

impl Pprof {
    /// Creates an exporter that writes into this folder. The folder is created if it does not exist.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes the sampled stacks of a trace to a writer instead of a file.
    pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        let mut out = GzEncoder::new(out, Compression::fast());
        out.write_all(&profile(trace).encode_to_vec())?;
        out.finish().map(drop)
    }
}

impl Exporter for Pprof {
    fn name(&self) -> &str {
        "Pprof"
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(file::check(&self.folder)?)
    }

    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        let trace = window.trace();
        if trace.stack_samples().next().is_none() {
            return Ok(Vec::new());
        }
        Ok(vec![file::write(&self.folder, trace, ".pb.gz", |mut out| Self::write(trace, &mut out))?])
    }
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// The type and the unit, by their places in the table of texts.
#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    /// Without these, pprof would look for symbols.
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The table of texts, the first of which is empty.
struct Texts<'a> {
    texts: Vec<String>,
    indices: FxHashMap<std::borrow::Cow<'a, str>, i64>,
}

impl<'a> Texts<'a> {
    fn index(&mut self, text: impl Into<std::borrow::Cow<'a, str>>) -> i64 {
        let (text, next) = (text.into(), self.texts.len() as i64);
        let texts = &mut self.texts;
        *self.indices.entry(text).or_insert_with_key(|text| {
            texts.push(text.clone().into_owned());
            next
        })
    }
}

/// Returns the profile of a trace. Samples that differ only in their time are one.
fn profile(trace: &Trace) -> Profile {
    let mut texts = Texts { texts: vec![String::new()], indices: FxHashMap::from_iter([("".into(), 0)]) };
    let mut value = |name, unit| ValueType { r#type: texts.index(name), unit: texts.index(unit) };
    let sample_type = vec![value("samples", "count"), value("cpu", "nanoseconds"), value("waiting", "nanoseconds")];
    let period_type = Some(value("cpu", "nanoseconds"));
    let signed = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
    let mut profile = Profile {
        sample_type,
        period_type,
        default_sample_type: texts.index("cpu"),
        time_nanos: signed(trace.start().as_unix_nanos().into()),
        duration_nanos: signed(trace.duration().as_nanos()),
        ..Profile::default()
    };
    let Some(sampling) = trace.stack_sampling() else { return Profile { string_table: texts.texts, ..profile } };
    profile.period = 1_000_000_000 / i64::from(sampling.hertz().max(1));
    let lost = (sampling.lost() > 0).then(|| format!("kernspan lost {} samples", sampling.lost()));
    let problem = sampling.problem().map(|problem| format!("kernspan: {problem}"));
    profile.comment = lost.into_iter().chain(problem).map(|comment| texts.index(comment)).collect();
    let mut mappings: FxHashMap<&str, u64> = FxHashMap::default();
    let mut functions: FxHashMap<(&str, Option<&str>), u64> = FxHashMap::default();
    for (index, frame) in sampling.frames().iter().enumerate() {
        let mapping_id = *mappings.entry(frame.library()).or_insert_with(|| {
            let (id, filename) = (profile.mapping.len() as u64 + 1, texts.index(frame.library()));
            let (has_functions, has_filenames, has_line_numbers, has_inline_frames) = (true, true, true, true);
            let mapping = Mapping { id, filename, has_functions, has_filenames, has_line_numbers, has_inline_frames };
            profile.mapping.push(mapping);
            id
        });
        let function_id = *functions.entry((frame.function(), frame.file())).or_insert_with(|| {
            let (id, name) = (profile.function.len() as u64 + 1, texts.index(frame.function()));
            let filename = texts.index(frame.file().unwrap_or_default());
            profile.function.push(Function { id, name, system_name: name, filename });
            id
        });
        let line = vec![Line { function_id, line: frame.line().unwrap_or(0).into() }];
        profile.location.push(Location { id: index as u64 + 1, mapping_id, line });
    }
    profile.sample = samples(trace, &mut texts);
    profile.string_table = texts.texts;
    profile
}

fn samples<'a>(trace: &'a Trace, texts: &mut Texts<'a>) -> Vec<Sample> {
    let [thread, span, spans] = ["thread", "span", "spans"].map(|key| texts.index(key));
    let mut known: FxHashMap<(Option<StackNodeId>, &str, i64), usize> = FxHashMap::default();
    let mut samples: Vec<Sample> = Vec::new();
    for sample in trace.stack_samples() {
        let mut names: Vec<_> = sample.span().into_iter().flat_map(Span::stack).map(Span::name).collect();
        let innermost = names.first().map(|name| texts.index(*name));
        names.reverse();
        let path = texts.index(names.join(" > "));
        let thread_name = sample.track().thread_name();
        let index = *known.entry((sample.node(), thread_name, path)).or_insert_with(|| {
            let of_spans = innermost.map(|name| [Label { key: span, str: name }, Label { key: spans, str: path }]);
            let of_thread = Label { key: thread, str: texts.index(thread_name) };
            samples.push(Sample {
                location_id: sample.frame_ids().map(|frame| frame.index() as u64 + 1).collect(),
                value: vec![0; 3],
                label: std::iter::once(of_thread).chain(of_spans.into_iter().flatten()).collect(),
            });
            samples.len() - 1
        });
        let nanos = i64::try_from(sample.duration().as_nanos()).unwrap_or(i64::MAX);
        let value = &mut samples[index].value;
        value[0] += i64::from(!sample.is_waiting());
        let time = if sample.is_waiting() { &mut value[2] } else { &mut value[1] };
        *time = time.saturating_add(nanos);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::{Pprof, Profile};
    use crate::{
        Exporter, Trace,
        analysis::Analysis,
        trace::{
            Span, StackFrame,
            sample::{gpu_trace, stacks_trace},
        },
    };
    use prost::Message;
    use std::{collections::BTreeMap, io::Read};

    fn decoded(trace: &Trace) -> Profile {
        let mut bytes = Vec::new();
        Pprof::write(trace, &mut bytes).unwrap();
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        Profile::decode(&plain[..]).unwrap()
    }

    #[test]
    fn a_profile_has_the_stacks_of_the_trace() {
        let trace = stacks_trace();
        let profile = decoded(&trace);
        let text = |index: i64| profile.string_table[usize::try_from(index).unwrap()].as_str();
        let mut expected = BTreeMap::new();
        for sample in trace.stack_samples() {
            let place = |frame: &StackFrame| i64::from(frame.line().unwrap_or(0));
            let stack: Vec<_> = sample.stack().map(|it| (it.function(), it.file().unwrap_or(""), place(it))).collect();
            let labels = format!("{} {:?}", sample.track().thread_name(), sample.span().map(Span::name));
            let value = expected.entry((stack, labels)).or_insert([0; 3]);
            value[0] += i64::from(!sample.is_waiting());
            value[if sample.is_waiting() { 2 } else { 1 }] += sample.duration().as_nanos() as i64;
        }
        let mut found = BTreeMap::new();
        for sample in &profile.sample {
            let stack = sample.location_id.iter().map(|id| {
                let location = profile.location.iter().find(|location| location.id == *id).unwrap();
                let line = &location.line[0];
                let function = profile.function.iter().find(|function| function.id == line.function_id).unwrap();
                (text(function.name), text(function.filename), line.line)
            });
            let label =
                |key: &str| sample.label.iter().find(|label| text(label.key) == key).map(|label| text(label.str));
            let labels = format!("{} {:?}", label("thread").unwrap(), label("span"));
            found.insert((stack.collect::<Vec<_>>(), labels), [sample.value[0], sample.value[1], sample.value[2]]);
            let path = label("span")
                .map(|span| if span == "train_step" { span.to_owned() } else { format!("train_step > {span}") });
            assert_eq!(label("spans").map(str::to_owned), path);
        }
        assert_eq!(found, expected);
        let types: Vec<_> = profile.sample_type.iter().map(|value| (text(value.r#type), text(value.unit))).collect();
        assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds"), ("waiting", "nanoseconds")]);
        let comments: Vec<_> = profile.comment.iter().map(|comment| text(*comment)).collect();
        assert_eq!(comments, ["kernspan lost 3 samples", "kernspan: waits of other processes were not sampled"]);
        assert_eq!((profile.period, text(profile.default_sample_type), text(0)), (1_000, "cpu", ""));
    }

    #[test]
    fn nothing_is_written_if_nothing_was_sampled() {
        let folder = tempfile::tempdir().unwrap();
        let mut pprof = Pprof::to_dir(folder.path());
        assert!(pprof.export(&Analysis::of(&gpu_trace())).unwrap().is_empty());
        assert_eq!(pprof.export(&Analysis::of(&stacks_trace())).unwrap().len(), 1);
        assert!(decoded(&gpu_trace()).sample.is_empty());
    }
}
