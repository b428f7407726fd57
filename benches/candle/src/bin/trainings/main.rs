//! Candle trainings with a planted fault and its fix, to test findings with.
//!
//! `trainings FOLDER [CASE...]` runs each case, or only those that are named, on the first GPU. It first times both
//! variants of a case without a subscriber or profiler, in turns; when all cases are timed, it records a window of each
//! variant to `FOLDER/candle-CASE-VARIANT.json.gz`. Timing everything first keeps CUPTI out of the timed steps.
//! `candle.jsonl` in the folder has one line for each variant; it is rewritten after each case, so that a crash loses
//! only the rest.
//!
//! With `--tiny`, the models are small and few steps run, also on the CPU: a test that no case fails. `--time` and
//! `--record` run only one of the two parts.

mod case;
mod compute_cases;
mod copy_cases;
mod fused_cases;
mod host_cases;
mod input_cases;
mod models;
mod recording;
mod recurrent_cases;
mod sync_cases;
mod timing;
mod transformer;
mod workers;

use self::{
    case::{CASES, Case, Setup, VARIANTS, Variant},
    recording::Recorded,
    timing::Timed,
};
use candle_core::{Device, cuda::set_gemm_reduced_precision_f32};
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

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
    let device = Device::cuda_if_available(0)?;
    if device.is_cpu() && !has("--tiny") {
        return Err("there is no GPU: only `--tiny` runs on the CPU".into());
    }
    let chosen = CASES.iter().filter(|case| names.is_empty() || names.iter().any(|name| name == case.name));
    let mut rows: Vec<Row> = chosen
        .map(|case| Row { case, setup: Setup::new(&device, has("--tiny")), timed: [None; 2], recorded: [None; 2] })
        .collect();
    let table = PathBuf::from(folder).join("candle.jsonl");
    let mut failed = Vec::new();
    for index in 0..rows.len() {
        let row = &mut rows[index];
        if let Err(error) = row.calibrate().and_then(|()| if has("--record") { Ok(()) } else { row.time() }) {
            failed.push(format!("{}: {error}", row.case.name));
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

impl Row {
    /// Finds the size of the case that depends on the machine.
    fn calibrate(&mut self) -> Result<(), Box<dyn Error>> {
        self.use_tensor_cores(Variant::Fixed);
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
            self.use_tensor_cores(variant);
            let mut step = (self.case.make)(&self.setup, variant)?;
            let count = timing::warm_up(&self.setup, &mut step)?;
            steps.push((variant, step, count, Vec::new()));
        }
        for _ in 0..timing::rounds(&self.setup) {
            for (variant, step, count, means) in &mut steps {
                self.use_tensor_cores(*variant);
                means.push(timing::mean(&self.setup, step, *count)?);
            }
        }
        for (variant, _, count, means) in steps {
            let timed = Timed { step_us: candle_bench::median(means), steps: count };
            eprintln!("{}, {}: {:.1} µs a step", self.case.name, variant.name(), timed.step_us);
            self.timed[variant as usize] = Some(timed);
        }
        Ok(())
    }

    fn record(&mut self, variant: Variant, folder: &Path) -> Result<(), Box<dyn Error>> {
        self.use_tensor_cores(variant);
        let file = folder.join(self.file(variant));
        let recorded = recording::record(&self.setup, || (self.case.make)(&self.setup, variant), &file)?;
        eprintln!("{}, {}: {recorded:?}", self.case.name, variant.name());
        self.recorded[variant as usize] = Some(recorded);
        Ok(())
    }

    fn file(&self, variant: Variant) -> String {
        format!("candle-{}-{}.json.gz", self.case.name, variant.name())
    }

    /// Lets products of f32 matrices use TF32, except where that is the fault: it would be the first finding in every
    /// GPU-bound case.
    fn use_tensor_cores(&self, variant: Variant) {
        set_gemm_reduced_precision_f32(self.case.kind != "no-tensor-cores" || variant == Variant::Fixed);
    }

    /// Returns the lines of the table.
    fn lines(&self) -> impl Iterator<Item = String> {
        let Case { name, model, kind, is_held_out, fix, .. } = *self.case;
        VARIANTS.into_iter().map(move |variant| {
            let (timed, recorded) = (self.timed[variant as usize], self.recorded[variant as usize]);
            let number = |number: Option<String>| number.unwrap_or_else(|| "null".to_owned());
            format!(
                "{{\"case\":{name:?},\"framework\":\"candle\",\"model\":{model:?},\"variant\":{:?},\
                 \"kind\":{kind:?},\"held_out\":{is_held_out},\"step_us\":{},\"timed steps\":{},\"recorded steps\":{},\"kernels\":{},\
                 \"calibrated\":{},\"fix\":{fix:?},\"trace\":{:?}}}",
                variant.name(),
                number(timed.map(|timed| format!("{:.1}", timed.step_us))),
                number(timed.map(|timed| timed.steps.to_string())),
                number(recorded.map(|recorded| recorded.steps.to_string())),
                number(recorded.map(|recorded| recorded.kernels.to_string())),
                self.setup.amount,
                self.file(variant),
            )
        })
    }
}
