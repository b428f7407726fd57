//! The texts about the run, its GPUs and its findings: tables in Markdown.

use crate::{
    analysis::{Analysis, Remedy, Saving},
    export::Run,
    trace::{Device, Gpu, Metadata, Trace},
};
use std::fmt::Write;

/// The maximum length of a value in a table, in characters.
const MAX_CHARS: usize = 1_000;

/// A table of two columns, in Markdown.
#[derive(Debug)]
struct Table(String);

impl Table {
    fn new() -> Self {
        Self("| | |\n|---|---|\n".to_owned())
    }

    fn row(&mut self, name: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "| {} | {} |", escaped(name), escaped(value));
    }
}

/// Returns a text on one line, escaped so that Markdown shows it unchanged.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for (count, c) in text.chars().enumerate() {
        match c {
            _ if count == MAX_CHARS => {
                escaped.push('…');
                break;
            }
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            // The table parser takes a `|` for a border even if it is escaped like the others.
            '|' => escaped.push_str("&#124;"),
            c if c.is_control() => escaped.push(' '),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '>' | '#' | '+' | '-' | '.' | '!' => {
                escaped.extend(['\\', c]);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the text about the program and how it is profiled. It includes the arguments if allowed.
pub(super) fn configuration(run: &Run, arguments: Option<&[String]>) -> String {
    let Metadata { host, pid, process, rank, world_size, run: name, user } = &*run.metadata;
    let mut table = Table::new();
    table.row("program", process);
    arguments.iter().for_each(|arguments| table.row("arguments", &arguments.join(" ")));
    table.row("host", host);
    table.row("pid", &pid.to_string());
    table.row("rank", &format!("{rank} of {world_size}"));
    name.iter().for_each(|name| table.row("run", name));
    table.row("kernspan", env!("CARGO_PKG_VERSION"));
    table.row("schedule", &run.schedule);
    table.row(
        "activities",
        &run.activities.iter().map(|activity| format!("{activity:?}")).collect::<Vec<_>>().join(", "),
    );
    user.iter().for_each(|(key, value)| table.row(key, value));
    table.0
}

/// Returns the text about the GPUs of a window, or why there are none.
pub(super) fn gpu(trace: &Trace) -> String {
    let mut table = Table::new();
    match trace.gpu() {
        Gpu::Available(library) => {
            table.row("CUPTI", &format!("{} from {}", library.cupti_version, library.path));
            table.row("driver's CUDA", &library.driver_version.to_string());
            library.warning.iter().for_each(|warning| table.row("warning", warning));
        }
        gpu => table.row("GPU", &gpu.to_string()),
    }
    for Device { id, name, memory, compute_capability: (major, minor), multiprocessors, .. } in trace.devices() {
        let gib = *memory as f64 / f64::from(1 << 30);
        let facts =
            format!("{name}, {gib:.1} GiB, compute capability {major}.{minor}, {multiprocessors} multiprocessors");
        table.row(&format!("GPU {id}"), &facts);
    }
    table.0
}

/// Returns the text about what makes the steps of a window slow, or `None` if nothing is known.
pub(super) fn findings(window: &Analysis<'_>) -> Option<String> {
    let findings = window.findings();
    let mut text = "| saves | of a step | finding | to do |\n|---:|---:|---|---|\n".to_owned();
    for finding in findings {
        let micros = |saving: Saving| format!("{:.1} µs", saving.likely.as_secs_f64() * 1e6);
        let (share, title) = (format!("{:.1} %", finding.percent()), &finding.title);
        let changes = match finding.remedies.as_slice() {
            several @ [_, _, ..] => {
                let change = |remedy: &Remedy| format!("{} (saves {})", remedy.change, micros(remedy.saving));
                several.iter().map(change).collect::<Vec<_>>().join(" Or: ")
            }
            _ => finding.advice().to_owned(),
        };
        let cells = [&micros(finding.saving), &share, title, &changes].map(|cell| escaped(cell));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    (!findings.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::{configuration, escaped, findings, gpu};
    use crate::{
        activity::Activity,
        analysis::Analysis,
        export::Run,
        trace::{Gpu, GpuProblem, Metadata, Timestamp, Trace, sample::gpu_trace},
    };
    use std::sync::Arc;

    #[test]
    fn the_configuration_is_a_table() {
        let mut metadata = Metadata {
            host: "box".to_owned(),
            pid: 12,
            process: "train_it".to_owned(),
            rank: 1,
            world_size: 4,
            ..Metadata::default()
        };
        metadata.user.insert("model".to_owned(), "a | b\n<i>".to_owned());
        let run = Run {
            id: None,
            metadata: Arc::new(metadata),
            start: Timestamp::default(),
            schedule: "Always".to_owned(),
            activities: vec![Activity::Host, Activity::Kernels],
            unrecorded: Arc::default(),
            followed: Arc::default(),
            vitals: Arc::default(),
            #[cfg(feature = "serving")]
            requests: None,
        };
        let text = configuration(&run, Some(&["--lr".to_owned(), "1e9".to_owned()]));
        let version = escaped(env!("CARGO_PKG_VERSION"));
        let expected = format!(
            "| | |\n|---|---|\n| program | train\\_it |\n| arguments | \\-\\-lr 1e9 |\n| host | box |\n| pid | 12 |\n\
             | rank | 1 of 4 |\n| kernspan | {version} |\n| schedule | Always |\n| activities | Host, Kernels |\n\
             | model | a &#124; b &lt;i\\> |\n"
        );
        assert_eq!(text, expected);
        assert_eq!(configuration(&run, None), expected.replace("| arguments | \\-\\-lr 1e9 |\n", ""));
    }

    #[test]
    fn the_text_has_the_gpus_or_why_there_are_none() {
        let text = gpu(&gpu_trace());
        assert!(
            text.contains("| CUPTI | 130001 from libcupti\\.so\\.13 |\n") && text.contains("| GPU 0 | NVIDIA H200, "),
            "{text}"
        );
        let without = Trace { gpu: Gpu::Unavailable(GpuProblem::NoDevice), ..Trace::default() };
        assert!(gpu(&without).ends_with("| GPU | GPU not recorded: the NVIDIA driver sees no device |\n"));
    }

    #[test]
    fn findings_are_a_table() {
        let text = findings(&Analysis::of(&gpu_trace())).unwrap();
        assert!(text.lines().skip(2).all(|row| row.matches(" | ").count() == 3), "{text}");
        assert!(text.contains(" µs | ") && text.contains(" % | the host "), "{text}");
        assert_eq!(findings(&Analysis::of(&Trace::default())), None);
    }

    #[test]
    fn values_are_not_longer_than_a_screen() {
        assert_eq!(escaped(&"é".repeat(2_000)), "é".repeat(1_000) + "…");
    }
}
