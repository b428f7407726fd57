//! Tests of the scalars, text and hyperparameters that the real TensorBoard shows.

use crate::support::{
    steps::{step_summaries, training},
    tensorboard::{Shown, assert_same, expected, millis, seconds, shown, values},
};
use kernspan::{
    Error, Profiler, ProfilerBuilder, Report, Schedule, TensorBoard, analysis::Analysis, export::StepSummary,
};
use serde_json::Value as Json;
use std::path::PathBuf;
use tracing::info;

/// Runs a training whose steps 2 and 3 are recorded. Returns the summaries of its steps, and the report.
fn recorded_training(
    setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
    program: impl FnOnce(&Profiler),
) -> (Vec<StepSummary>, Result<Report, Error>) {
    step_summaries(|builder| setup(builder.schedule(Schedule::steps(2..=3))), program)
}

/// Returns the files with scalars, without those of profiles.
fn events_files(files: &[PathBuf]) -> Vec<PathBuf> {
    files.iter().filter(|file| file.to_string_lossy().contains("tfevents")).cloned().collect()
}

#[test]
fn every_step_is_shown_with_its_time_and_its_counters() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = TensorBoard::to_dir(folder.path()).samples_per_step(64);
    let (steps, report) = recorded_training(
        |builder| builder.export(exporter),
        |profiler| {
            for step in 0..200_u32 {
                info!(counter.loss = if step == 7 { f64::NAN } else { 1.0 / f64::from(step + 1) });
                if step % 10 == 0 {
                    info!(counter.lr = 0.1, counter.big = if step == 0 { f64::INFINITY } else { -1e30 });
                }
                if step == 100 {
                    info!(counter.samples = 3);
                }
                std::thread::yield_now();
                profiler.step();
            }
            info!(counter.accuracy = 0.75);
        },
    );
    let [file] = events_files(report.unwrap().files()).try_into().unwrap();
    assert_eq!((file.parent().unwrap(), steps.len()), (folder.path(), 201));
    let Some(shown) = shown(folder.path(), 200 + 199 * 3 + 2 * 20 + 3) else { return };
    for shown in shown {
        let tags = &shown.scalars["."];
        let names: Vec<_> = tags.keys().map(String::as_str).collect();
        let all = [
            "accuracy",
            "big",
            "loss",
            "lr",
            "profiler/lost",
            "samples",
            "step/per_second",
            "step/samples_per_second",
            "step/time_ms",
        ];
        assert_eq!(names, all);
        let check = |tag: &str, value: &dyn Fn(&StepSummary) -> Option<f64>| {
            assert_same(&values(&tags[tag]), &expected(&steps, 0, value));
        };
        check("step/time_ms", &millis);
        check("step/per_second", &|step| Some(1.0 / seconds(step)?));
        let samples = |step: &StepSummary| if step.number == 100 { 3.0 } else { 64.0 };
        check("step/samples_per_second", &|step| Some(samples(step) / seconds(step)?));
        for name in ["loss", "lr", "big", "samples", "accuracy"] {
            check(name, &|step| step.counter(name));
        }
        assert_eq!(values(&tags["accuracy"]), [(200, 0.75)]);
        assert!(tags["loss"][7].2.is_nan() && tags["big"][0].2 == f64::INFINITY);
        assert_eq!(values(&tags["profiler/lost"]), [(3, 0.0)]);
        for (step, (wall, ..)) in steps[1..].iter().zip(&tags["step/time_ms"]) {
            assert!((step.end().as_unix_nanos() as f64 / 1e9 - wall).abs() < 1e-5, "{wall}: {step:?}");
        }
    }
}

#[test]
fn the_configuration_and_the_gpu_are_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = TensorBoard::to_dir(folder.path());
    let (_, report) = recorded_training(
        |builder| builder.metadata("model", "a *b* | <script>c</script>").rank(0, 2).export(exporter),
        training(5),
    );
    let gpu = report.unwrap().gpu().clone();
    let Some(shown) = shown(folder.path(), 14) else { return };
    for shown in shown {
        let text = |tag: &str| {
            let points = shown.text["."][tag].as_array().unwrap();
            assert_eq!(points.len(), 1, "{points:?}");
            // A list of strings would be shown as a table.
            assert!(!points[0]["text"].as_str().unwrap().contains("<td><table>"), "{points:?}");
            points[0]["text"].as_str().unwrap().to_owned()
        };
        let configuration = text("kernspan/configuration");
        let row = |name: &str, value: &str| format!("<td>{name}</td>\n<td>{value}</td>");
        for row in [
            row("rank", "0 of 2"),
            row("pid", &std::process::id().to_string()),
            row("schedule", "steps 2 to 3"),
            row("kernspan", env!("CARGO_PKG_VERSION")),
            row("activities", "Host, Kernels, Copies"),
            row("model", "a *b* &#124; &lt;script&gt;c&lt;/script&gt;"),
        ] {
            assert!(configuration.contains(&row), "no {row} in {configuration}");
        }
        let first_words: String = gpu.to_string().chars().take(16).collect();
        assert!(gpu.is_available() || text("kernspan/gpu").contains(&first_words), "{}", text("kernspan/gpu"));
    }
}

#[test]
fn hyperparameters_and_metrics_are_a_table_of_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (run, rate, optimizer) in [("a", 0.5, "adamw"), ("b", 0.25, "sgd")] {
        let exporter = TensorBoard::to_dir(folder.path().join(run)).hparam("lr", rate).hparam("optimizer", optimizer);
        let exporter = exporter.hparam("amp", run == "a").hparam("layers", 1).hparam("layers", 12);
        recorded_training(|builder| builder.export(exporter), training(5)).1.unwrap();
    }
    let Some(shown) = shown(folder.path(), 28) else { return };
    for Shown { hparams, .. } in shown {
        let named = |list: &str, pointer: &str| -> Vec<Json> {
            hparams["experiment"][list]
                .as_array()
                .unwrap()
                .iter()
                .map(|info| info.pointer(pointer).unwrap().clone())
                .collect()
        };
        let mut names = named("hparamInfos", "/name");
        names.sort_by_key(Json::to_string);
        assert_eq!(names, ["amp", "layers", "lr", "optimizer"], "{hparams}");
        assert!(named("metricInfos", "/name/tag").contains(&"loss".into()), "{hparams}");
        let groups = hparams["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 2, "{hparams}");
        for (group, (run, rate, optimizer)) in groups.iter().zip([("a", 0.5, "adamw"), ("b", 0.25, "sgd")]) {
            let expected = serde_json::json!({ "amp": run == "a", "layers": 12.0, "lr": rate, "optimizer": optimizer });
            assert_eq!(group["hparams"], expected, "{group}");
            let [session] = &group["sessions"].as_array().unwrap()[..] else { panic!("{group}") };
            assert_eq!((&session["name"], &session["status"]), (&run.into(), &"STATUS_SUCCESS".into()), "{session}");
            let loss = session["metricValues"]
                .as_array()
                .unwrap()
                .iter()
                .find(|metric| metric["name"]["tag"] == "loss")
                .unwrap();
            assert!((loss["value"].as_f64().unwrap() - 0.2).abs() < 1e-6 && loss["trainingStep"] == 4, "{loss}");
        }
    }
}

#[test]
fn a_resumed_run_goes_on_in_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (before, report) =
        recorded_training(|builder| builder.export(TensorBoard::to_dir(folder.path())), training(30));
    let [first] = events_files(report.unwrap().files()).try_into().unwrap();
    let content = std::fs::read(&first).unwrap();
    // From a checkpoint after step 19.
    let (after, report) =
        recorded_training(|builder| builder.export(TensorBoard::to_dir(folder.path()).first_step(20)), training(10));
    let [second] = events_files(report.unwrap().files()).try_into().unwrap();
    assert_ne!(first, second);
    assert_eq!(std::fs::read(&first).unwrap(), content, "the old file is left alone");
    let Some(shown) = shown(folder.path(), 30 + 2 * 28 + 2) else { return };
    // Steps of the first run after the checkpoint are dropped. The fast loader drops them from the step on at which the
    // tag comes again, and the first step has no time.
    for (shown, kept) in shown.into_iter().zip([21, 20]) {
        let resumed = [expected(&before[..kept], 0, millis), expected(&after, 20, millis)].concat();
        let losses = [&before[..20], &after].map(|steps| steps.iter().filter_map(|step| step.counter("loss")));
        let losses: Vec<_> = losses.into_iter().flatten().zip(0..).map(|(loss, step)| (step, loss as f32)).collect();
        assert_same(&values(&shown.scalars["."]["loss"]), &losses);
        assert_same(&values(&shown.scalars["."]["step/time_ms"]), &resumed);
        assert_eq!(values(&shown.scalars["."]["profiler/lost"]), [(3, 0.0), (23, 0.0)]);
    }
}

#[test]
fn runs_and_ranks_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let steps: Vec<_> = [("one", 0, 1), ("several", 0, 2), ("several", 1, 2)]
        .iter()
        .map(|&(run, rank, size)| {
            let exporter = TensorBoard::to_dir(folder.path().join(run)).hparam("lr", 0.5);
            recorded_training(|builder| builder.rank(rank, size).export(exporter), training(5 + rank)).0
        })
        .collect();
    let Some(shown) = shown(folder.path(), 45) else { return };
    for shown in shown {
        for (run, steps) in ["one", "several", "several/rank1"].iter().zip(&steps) {
            assert_same(&values(&shown.scalars[*run]["step/time_ms"]), &expected(steps, 0, millis));
        }
        assert_eq!(shown.scalars.len(), 3);
        assert_eq!(shown.hparams["groups"].as_array().unwrap().len(), 2, "a session is of all ranks");
    }
}

#[test]
fn names_of_counters_may_be_anything() {
    let folder = tempfile::tempdir().unwrap();
    let (steps, report) = recorded_training(
        |builder| builder.export(TensorBoard::to_dir(folder.path())),
        |profiler| {
            info!(counter.train.loss = 1.0);
            info!("counter.model::layer<T>::norm" = 2.0, "counter.☃ & \"quoted\" / ?#%" = 3.0);
            info!("counter.nul\0 and\nline" = 4.0, "counter." = 5.0, "counter.step/time_ms" = 6.0);
            info!("counter._hparams_/session_start_info" = 7.0, "counter.kernspan/gpu" = 8.0);
            profiler.step();
        },
    );
    assert_eq!(steps.len(), 1);
    report.unwrap();
    let Some(shown) = shown(folder.path(), 8) else { return };
    for shown in shown {
        let mut tags = shown.scalars["."].clone();
        for (tag, value) in [
            ("train.loss", 1.0),
            ("model::layer<T>::norm", 2.0),
            ("☃ & \"quoted\" / ?#%", 3.0),
            ("nul_ and_line", 4.0),
            ("counter/", 5.0),
            ("counter/step/time_ms", 6.0),
            ("counter/_hparams_/session_start_info", 7.0),
            ("counter/kernspan/gpu", 8.0),
        ] {
            assert_eq!(tags.remove(tag).map(|series| values(&series)), Some(vec![(0, value)]), "{tag}");
        }
        assert!(tags.is_empty(), "{tags:?}");
    }
}

#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn the_gpu_activity_of_each_step_is_shown_as_in_the_report() {
    use crate::support::tensorboard::Points;
    use kernspan::Exporter;
    use std::collections::BTreeMap;
    let folder = tempfile::tempdir().unwrap();
    let mut expected: BTreeMap<&str, BTreeMap<String, Points>> = BTreeMap::new();
    let (recordings, mut points) = (["training", "candle", "calls"], 0);
    for recording in recordings {
        let trace = crate::support::recorded(recording);
        let files =
            TensorBoard::to_dir(folder.path().join(recording)).first_step(100).export(&Analysis::of(&trace)).unwrap();
        assert_eq!(events_files(&files).len(), 1);
        let report = Report::of([&trace]);
        let tags = expected.entry(recording).or_default();
        for step in report.gpu_steps().steps() {
            let mut add = |tag: &str, value: f64| {
                let prefix = if step.device.as_u32() == 0 { "gpu".to_owned() } else { format!("gpu{}", step.device) };
                tags.entry(format!("{prefix}/{tag}")).or_default().push((100 + step.step, value as f32));
            };
            add("busy_percent", step.usage.busy_percent());
            add("kernels", step.usage.kernels as f64);
            add("copied_bytes", step.usage.copied as f64);
            step.peak_memory.iter().for_each(|&bytes| add("peak_memory_bytes", bytes as f64));
            step.usage.mfu().iter().for_each(|&mfu| add("mfu_percent", mfu));
        }
        let last = trace.steps().last().map_or(0, kernspan::trace::Step::number);
        tags.insert("profiler/lost".to_owned(), vec![(100 + last, trace.losses().total() as f32)]);
        let whole = trace.steps().iter().filter(|step| !step.cut().any() && step.number() > 0);
        let times = whole.map(|step| (100 + step.number(), (step.duration().as_secs_f64() * 1e3) as f32));
        tags.insert("step/time_ms".to_owned(), times.collect());
        points += tags.values().map(Vec::len).sum::<usize>();
    }
    let all: Vec<_> = expected.values().flat_map(BTreeMap::keys).map(String::as_str).collect();
    for tag in ["gpu/busy_percent", "gpu/kernels", "gpu/copied_bytes", "gpu/peak_memory_bytes"] {
        assert!(all.contains(&tag), "no recording has {tag}: {all:?}");
    }
    let Some(shown) = shown(folder.path(), points) else { return };
    for shown in shown {
        for (recording, tags) in &expected {
            for (tag, series) in tags.iter().filter(|(_, series)| !series.is_empty()) {
                assert_same(&values(&shown.scalars[*recording][tag]), series);
            }
            assert!(shown.text[recording]["kernspan/gpu"][0]["text"].as_str().unwrap().contains("NVIDIA H200"));
        }
    }
}

#[test]
#[cfg(feature = "sample")]
fn the_hardware_counters_of_each_step_are_shown() {
    use kernspan::{
        Exporter,
        trace::{
            MetricMeaning,
            sample::{add_gpu_counters, gpu_trace},
        },
    };
    let (folder, mut trace) = (tempfile::tempdir().unwrap(), gpu_trace());
    let metrics = [
        ("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", MetricMeaning::SmActive),
        ("dram__read_bytes.sum.per_second", MetricMeaning::DramRead),
        ("sm__cycles_elapsed.avg.per_second", MetricMeaning::SmClock),
        ("lts__t_hit_rate.pct", MetricMeaning::Custom),
    ];
    // The work of the first step takes 35 and 40 µs of the first two samples, that of the second 15, 40 and 20 µs of
    // the others.
    let samples = [20.0, 80.0, 30.0, 60.0, 90.0].map(|sm| [sm, 1e9 * sm, 1.98e9, 100.0 - sm]);
    add_gpu_counters(&mut trace, 0, &metrics, 40, &samples.each_ref().map(|sample| &sample[..]));
    TensorBoard::to_dir(folder.path()).export(&Analysis::of(&trace)).unwrap();
    // Each step has its time, its rate, four figures of its own and four counters; the window has its losses.
    let Some(shown) = shown(folder.path(), 2 * 10 + 1) else { return };
    for shown in shown {
        for (tag, expected) in [
            ("gpu/sm_active_percent", [52.0, 62.0]),
            ("gpu/dram_read_bytes_per_second", [52e9, 62e9]),
            ("gpu/sm_clock_hertz", [1.98e9; 2]),
            ("gpu/lts__t_hit_rate.pct", [48.0, 38.0]),
        ] {
            assert_same(&values(&shown.scalars["."][tag]), &[(5, expected[0]), (6, expected[1])]);
        }
    }
}
