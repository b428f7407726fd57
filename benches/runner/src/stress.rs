//! Trainings on a machine under stress, to judge the findings about the machine with.
//!
//! Each training runs for some seconds, recorded, with stress in the middle. The program knows when that was, and so
//! what it cost: the findings have to say the same from the vital signs alone.

use crate::{
    case::{Case, Framework, Setup, Variant},
    random::Random,
    stressor::{DiskBatches, Stress, Stressor},
};
use kernspan::{Activity, Chrome, Collected, Profiler, Schedule, Vitals, analysis::Analysis};
use std::{
    error::Error,
    fs::{self, File},
    io::Write,
    ops::Range,
    path::Path,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

/// The time before the stress, with it, and after it, in seconds. The first is up to a second longer, by chance.
const PARTS: [f64; 3] = [1.5, 2.0, 2.0];
/// How long the machine may take until the stress shows, and until it has passed.
const SETTLING: [f64; 2] = [0.3, 0.8];
/// The findings that are judged.
const KINDS: [&str; 5] = ["cpu-saturated", "disk-wait", "swapping", "clock-throttling", "shared-gpu"];

/// A stretch of time, in seconds since the window was opened.
type Seconds = Range<f64>;

/// The mean of some steps in seconds, and its standard error.
#[derive(Clone, Copy, Debug)]
struct Mean {
    steps: usize,
    value: f64,
    error: f64,
}

impl Mean {
    /// Steps that follow each other are alike, so the error is that of the means of so many stretches.
    const STRETCHES: usize = 8;

    fn of(times: &[f64]) -> Self {
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let length = (times.len() / Self::STRETCHES).max(1);
        let stretches: Vec<_> = times.chunks_exact(length).map(mean).collect();
        let value = mean(times);
        let squares: f64 = stretches.iter().map(|stretch| (stretch - value).powi(2)).sum();
        let count = stretches.len() as f64;
        Self { steps: times.len(), value, error: (squares / (count - 1.0).max(1.0) / count.max(1.0)).sqrt() }
    }
}

/// Runs each case with each kind of stress, writes a trace and a line of `stress.jsonl` for each, and prints what was
/// found.
pub(crate) fn run<F: Framework>(
    cases: &[&'static Case<F>],
    kinds: &[Stress],
    folder: &Path,
    tiny: bool,
) -> Result<(), Box<dyn Error>> {
    let setup = Setup { device: F::device(tiny)?, tiny, amount: 1 };
    let mut table = File::create(folder.join("stress.jsonl"))?;
    let mut random = Random::new(36);
    let mut failed = Vec::new();
    // Of its own, so that no file of the user's is written to or removed.
    let busy = folder.join(format!("busy-{}", std::process::id()));
    for case in cases {
        for &stress in kinds {
            let name = format!("{}-{}-{}", F::NAME, case.name, stress.name());
            fs::create_dir(&busy)?;
            let judged = judge(case, &setup, stress, [folder, &busy], &name, f64::from(random.uniform()));
            fs::remove_dir_all(&busy)?;
            match judged {
                Ok(line) => {
                    println!("{line}");
                    writeln!(table, "{line}")?;
                }
                Err(error) => failed.push(format!("{name}: {error}")),
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

/// Runs a training under stress, whose files are in a folder of their own. Returns the line of the table.
fn judge<F: Framework>(
    case: &Case<F>,
    setup: &Setup<F>,
    stress: Stress,
    [folder, busy]: [&Path; 2],
    name: &str,
    later: f64,
) -> Result<String, Box<dyn Error>> {
    F::configure(case, Variant::Fixed);
    let mut stressor = Stressor::prepare(stress, busy, setup.tiny)?;
    let mut batches = if stress == Stress::Disk { Some(DiskBatches::new(busy)?) } else { None };
    let collected = Collected::new();
    let parts = folder.join(format!("{name}.parts"));
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host])
        .vitals(Vitals::default())
        .schedule(Schedule::manual())
        .export(collected.clone())
        .export(Chrome::to_dir(&parts).gzip(true))
        .build()?;
    let subscriber = tracing_subscriber::registry().with(layer);
    let (steps, stressed) = tracing::subscriber::with_default(subscriber, || {
        let mut step = (case.make)(setup, Variant::Fixed).map_err(Into::into)?;
        let mut step = || -> Result<(), Box<dyn Error>> {
            let _step = tracing::info_span!("train_step").entered();
            if let Some(batches) = &mut batches {
                let _read = tracing::info_span!("read_batch").entered();
                batches.read()?;
            }
            step().map_err(Into::into)
        };
        for _ in 0..F::WARM_UP {
            step()?;
        }
        F::synchronize(&setup.device).map_err(Into::into)?;
        train(&profiler, &mut step, &mut stressor, later)
    })?;
    drop(stressor);
    let report = profiler.finish()?;
    let file = format!("{name}.json.gz");
    fs::rename(&report.files()[0], folder.join(&file))?;
    fs::remove_dir_all(&parts)?;

    let [settling, passing] = SETTLING;
    let times = |is_in: &dyn Fn(&Seconds) -> bool| -> Vec<f64> {
        steps.iter().filter(|step| is_in(step)).map(|step| step.end - step.start).collect()
    };
    let within = Mean::of(&times(&|step| step.start >= stressed.start + settling && step.end <= stressed.end));
    let without = Mean::of(&times(&|step| step.end <= stressed.start || step.start >= stressed.end + passing));
    let all = Mean::of(&times(&|_| true));
    let trace = collected.only();
    let window = Analysis::of(&trace);
    let mut found = Vec::new();
    for finding in window.findings().iter().filter(|finding| KINDS.contains(&finding.kind.as_str())) {
        let millis = |time: Duration| 1e3 * time.as_secs_f64();
        found.push(format!(
            "{{\"kind\":\"{}\",\"least\":{:.3},\"likely\":{:.3},\"most\":{:.3}}}",
            finding.kind.as_str(),
            millis(finding.saving.least),
            millis(finding.saving.likely),
            millis(finding.saving.most),
        ));
    }
    let mean = |mean: Mean| {
        format!("{{\"steps\":{},\"ms\":{:.3},\"error\":{:.3}}}", mean.steps, 1e3 * mean.value, 1e3 * mean.error)
    };
    Ok(format!(
        "{{\"case\":{:?},\"framework\":{:?},\"model\":{:?},\"stress\":{:?},\"kind\":{:?},\"all\":{},\"stressed\":{},\
         \"others\":{},\"found\":[{}],\"trace\":{file:?}}}",
        case.name,
        F::NAME,
        case.model,
        stress.name(),
        stress.kind().unwrap_or_default(),
        mean(all),
        mean(within),
        mean(without),
        found.join(",")
    ))
}

/// Trains, with stress in the middle. Returns the times of the steps, and that of the stress, in seconds.
fn train(
    profiler: &Profiler,
    step: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
    stressor: &mut Stressor,
    later: f64,
) -> Result<(Vec<Seconds>, Seconds), Box<dyn Error>> {
    let [before, during, after] = PARTS;
    let window = profiler.record();
    let start = Instant::now();
    let now = || start.elapsed().as_secs_f64();
    let mut steps: Vec<Seconds> = Vec::new();
    let mut until = |end: f64| {
        while now() < end {
            let begin = now();
            step()?;
            profiler.step();
            steps.push(begin..now());
        }
        Ok::<_, Box<dyn Error>>(())
    };
    until(before + later)?;
    let begun = now();
    stressor.begin()?;
    until(now() + during)?;
    let ended = now();
    *stressor = Stressor::Nothing;
    until(now() + after)?;
    drop(window);
    Ok((steps, begun..ended))
}
