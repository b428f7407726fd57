//! Burn trainings with a planted fault and its fix, to test findings with.
//!
//! `trainings FOLDER [CASE...]` runs each case, or only those that are named, on the first GPU. It first times both
//! variants of a case without a subscriber or profiler, in turns; when all cases are timed, it records a window of each
//! variant to `FOLDER/burn-CASE-VARIANT.json.gz`. `burn.jsonl` in the folder has one line for each variant; it is
//! rewritten after each case, so that a crash loses only the rest.
//!
//! With `--tiny`, the models are small and few steps run, also on the CPU: a test that no case fails. `--time` and
//! `--record` run only one of the two parts.
//!
//! Most cases have matrices of the same sizes, because Burn tunes its kernels for each size, for seconds.

mod cases;
mod copy_cases;
mod encoder;
mod host_cases;
mod loader;
mod mlp_cases;
mod models;
mod text;
mod workers;

use self::cases::{CASES, Case, Setup, Step, VARIANTS, Variant};
use burn::tensor::Device;
use kernspan::{Chrome, Profiler, Schedule};
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

/// Steps that run before anything is timed or recorded: in the first ones, Burn compiles and tunes kernels.
const WARM_UP: usize = 40;
/// The seconds that a round takes, and the fewest and most steps of it.
const ROUND: f64 = 1.0;
const STEPS: [usize; 2] = [30, 4000];
/// Steps that the schedule leaves out, those in which it warms up, and those that it records.
const SCHEDULE: [u64; 3] = [3, 2, 5];
/// Steps after the window, so that its last one is followed by another.
const AFTER: u64 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let (flags, names): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    if let Some(flag) = flags.iter().find(|flag| !["--tiny", "--time", "--record"].contains(&flag.as_str())) {
        return Err(format!("unknown flag {flag}").into());
    }
    let [folder, names @ ..] = &names[..] else {
        return Err("usage: trainings [--tiny] [--time] [--record] FOLDER [CASE...]".into());
    };
    if let Some(name) = names.iter().find(|name| CASES.iter().all(|case| case.name != *name)) {
        let known: Vec<_> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("unknown case {name}: expected one of {}", known.join(", ")).into());
    }
    fs::create_dir_all(folder)?;
    let device = burn_bench::gpu().or_else(|error| if has("--tiny") { Ok(Device::flex()) } else { Err(error) })?;
    let chosen = CASES.iter().filter(|case| names.is_empty() || names.iter().any(|name| name == case.name));
    let mut rows: Vec<Row> = chosen
        .map(|case| Row { case, setup: Setup::new(&device, has("--tiny")), timed: [None; 2], recorded: [None; 2] })
        .collect();
    let table = PathBuf::from(folder).join("burn.jsonl");
    let mut failed = Vec::new();
    for index in 0..rows.len() {
        rows[index].calibrate()?;
        if !has("--record") {
            rows[index].time()?;
        }
        write(&table, &rows)?;
    }
    for index in 0..rows.len() {
        for variant in VARIANTS {
            if has("--time") {
                continue;
            }
            if let Err(error) = rows[index].record(variant, Path::new(folder)) {
                failed.push(format!("{}, {}: {error}", rows[index].case.name, variant.name()));
            }
            write(&table, &rows)?;
        }
    }
    rows.iter().flat_map(Row::lines).for_each(|line| println!("{line}"));
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

fn write(table: &Path, rows: &[Row]) -> std::io::Result<()> {
    fs::write(table, rows.iter().flat_map(Row::lines).map(|line| line + "\n").collect::<String>())
}

/// A case with what is known of it so far.
struct Row {
    case: &'static Case,
    setup: Setup,
    timed: [Option<Timed>; 2],
    recorded: [Option<Recorded>; 2],
}

/// The time of a step without a profiler: the median of the means of the rounds.
#[derive(Clone, Copy, Debug)]
struct Timed {
    step_us: f64,
    steps: usize,
}

/// What was recorded.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    steps: u64,
    kernels: u64,
    #[allow(dead_code, reason = "printed with the rest")]
    bytes: u64,
}

impl Row {
    /// Finds the size of the case that depends on the machine.
    fn calibrate(&mut self) -> Result<(), Box<dyn Error>> {
        if let Some(calibrate) = self.case.calibrate.filter(|_| !self.setup.tiny) {
            self.setup.amount = calibrate(&self.setup)?;
            eprintln!("{}: calibrated to {}", self.case.name, self.setup.amount);
        }
        Ok(())
    }

    /// Times both variants in turns, because the speed of the machine changes from second to second.
    fn time(&mut self) -> Result<(), Box<dyn Error>> {
        let mut steps = Vec::new();
        for variant in VARIANTS {
            let start = Instant::now();
            let mut step = (self.case.make)(&self.setup, variant);
            let count = if self.setup.tiny {
                2
            } else {
                mean(&self.setup, &mut step, WARM_UP)?;
                ((ROUND * 1e6 / mean(&self.setup, &mut step, STEPS[0])?) as usize).clamp(STEPS[0], STEPS[1])
            };
            eprintln!("{}, {}: warm after {:.1?}", self.case.name, variant.name(), start.elapsed());
            steps.push((variant, step, count, Vec::new()));
        }
        for _ in 0..if self.setup.tiny { 1 } else { 5 } {
            for (_, step, count, means) in &mut steps {
                means.push(mean(&self.setup, step, *count)?);
            }
        }
        for (variant, _, count, means) in steps {
            let timed = Timed { step_us: burn_bench::median(means), steps: count };
            eprintln!("{}, {}: {:.1} µs a step", self.case.name, variant.name(), timed.step_us);
            self.timed[variant as usize] = Some(timed);
        }
        Ok(())
    }

    /// Records a window of a variant to a file.
    fn record(&mut self, variant: Variant, folder: &Path) -> Result<(), Box<dyn Error>> {
        let file = folder.join(self.file(variant));
        let parts = file.with_extension("parts");
        let [wait, warmup, active] = SCHEDULE;
        let (layer, profiler) = Profiler::builder()
            .schedule(Schedule::new().wait(wait).warmup(warmup).active(active).repeat(1))
            .export(Chrome::to_dir(&parts).gzip(true))
            .detach_after(Duration::ZERO)
            .build()?;
        if !self.setup.tiny && !profiler.gpu().is_available() {
            return Err(profiler.gpu().to_string().into());
        }
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || -> Result<(), Box<dyn Error>> {
            self.setup.device.sync()?;
            let attached = kernspan_burn::attach(&profiler, &self.setup.device)?;
            let mut step = (self.case.make)(&self.setup, variant);
            for _ in 0..if self.setup.tiny { 1 } else { WARM_UP } {
                step();
            }
            for _ in 0..SCHEDULE.iter().sum::<u64>() + AFTER {
                step();
                profiler.step();
            }
            self.setup.device.sync()?;
            drop(attached);
            Ok(())
        })?;
        let report = profiler.finish()?;
        let [recorded] = report.files() else {
            return Err(format!("{} files instead of one", report.files().len()).into());
        };
        fs::rename(recorded, &file)?;
        fs::remove_dir(&parts)?;
        if !report.losses().is_empty() {
            return Err(report.losses().to_string().into());
        }
        let rows = report.kernels().limit(usize::MAX).rows();
        // Copies and fills have no registers.
        let kernels = rows.iter().filter(|row| row.registers.is_some()).map(|row| row.calls).sum();
        let recorded = Recorded { steps: report.steps().count(), kernels, bytes: fs::metadata(&file)?.len() };
        eprintln!("{}, {}: {recorded:?}", self.case.name, variant.name());
        self.recorded[variant as usize] = Some(recorded);
        Ok(())
    }

    fn file(&self, variant: Variant) -> String {
        format!("burn-{}-{}.json.gz", self.case.name, variant.name())
    }

    /// Returns the lines of the table. Where the variants have steps of different sizes, times are those of as many
    /// samples as the larger has, and `of steps` is the number of the smaller's steps that take that long.
    fn lines(&self) -> impl Iterator<Item = String> {
        let Case { name, model, kind, is_held_out, fix, samples, .. } = *self.case;
        VARIANTS.into_iter().map(move |variant| {
            let (timed, recorded) = (self.timed[variant as usize], self.recorded[variant as usize]);
            let number = |number: Option<String>| number.unwrap_or_else(|| "null".to_owned());
            let of_steps = samples[0].max(samples[1]) / samples[variant as usize];
            format!(
                "{{\"case\":{name:?},\"framework\":\"burn\",\"model\":{model:?},\"variant\":{:?},\
                 \"kind\":{kind:?},\"held_out\":{is_held_out},\"step_us\":{},\"of steps\":{of_steps},\"timed steps\":{},\
                 \"recorded steps\":{},\"kernels\":{},\"calibrated\":{},\"fix\":{fix:?},\"trace\":{:?}}}",
                variant.name(),
                number(timed.map(|timed| format!("{:.1}", timed.step_us * of_steps as f64))),
                number(timed.map(|timed| timed.steps.to_string())),
                number(recorded.map(|recorded| recorded.steps.to_string())),
                number(recorded.map(|recorded| recorded.kernels.to_string())),
                self.setup.amount,
                self.file(variant),
            )
        })
    }
}

/// Returns the microseconds per step. As in a training, nothing waits for the GPU until the last step.
fn mean(setup: &Setup, step: &mut Step, count: usize) -> Result<f64, Box<dyn Error>> {
    setup.device.sync()?;
    let start = Instant::now();
    (0..count).for_each(|_| step());
    setup.device.sync()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
}
