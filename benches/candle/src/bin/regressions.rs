//! Measures how well `kernspan_check` tells a slower program from a noisy machine, on the training of candle-mnist.
//!
//! ```sh
//! cargo build --release -p candle-bench --bin regressions
//! target/release/regressions record FOLDER ROUNDS    # trains four times in each round, in processes of their own
//! target/release/regressions evaluate FOLDER         # pairs them, checks each pair, and prints the figures
//! ```
//!
//! Each run is a process of its own with one thread, four steps and then twenty that are recorded. The four runs of a
//! round, in turns: two as they are, one with 5 % of a step more work in `conv2`, one with as much
//! more in `backward`. The work is real, so that it takes longer on a busy machine, as all else does.

#[path = "../../../../examples/candle-mnist/src/digits.rs"]
mod digits;
#[path = "../../../../examples/candle-mnist/src/model.rs"]
mod model;

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, ModuleT, Optimizer, VarBuilder, VarMap, loss};
use digits::Digits;
use kernspan::{Profiler, Schedule};
use kernspan_candle::{Profiled, data};
use kernspan_check::{Baseline, Recorder, check};
use model::Model;
use std::{
    collections::HashSet,
    error::Error,
    fs,
    hint::black_box,
    path::Path,
    process::Command,
    sync::Mutex,
    time::{Duration, Instant},
};
use tracing::{Subscriber, field::Field, instrument, span};
use tracing_subscriber::{Layer, layer::Context, prelude::*, registry::LookupSpan};

const BATCH: usize = 64;
/// Steps before those that are recorded, and those.
const STEPS: [usize; 2] = [4, 20];
/// The part of a step that the planted work takes.
const PLANTED: f64 = 0.05;
/// The runs of a round, with the span that has more work.
const ROUND: [(&str, Option<&str>); 4] =
    [("a", None), ("conv2", Some("conv2")), ("b", None), ("backward", Some("backward"))];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["train", file] => train(file, None),
        ["train", file, span, work] => train(file, Some(Planted::new(span, work.parse()?))),
        ["record", folder, rounds] => record(folder, rounds.parse()?),
        ["evaluate", folder] => evaluate(folder),
        _ => Err("usage: regressions record FOLDER ROUNDS | evaluate FOLDER".into()),
    }
}

/// Trains as candle-mnist does, and writes the baseline of this run.
fn train(file: &str, planted: Option<Planted>) -> Result<(), Box<dyn Error>> {
    let schedule = Schedule::new().wait(STEPS[0] as u64).active(STEPS[1] as u64).repeat(1);
    let recorder = Recorder::new();
    let builder = Profiler::builder().schedule(schedule).step_on("train_step").export(recorder.clone());
    let (layer, profiler) = builder.build()?;
    // The layer that works is called before that of the profiler, so that the work is in the span.
    tracing_subscriber::registry().with(planted).with(layer).init();
    let device = Device::Cpu;
    let variables = VarMap::new();
    let model = Model::new(VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    let mut optimizer = Profiled::new(AdamW::new_lr(variables.all_vars(), 1e-3)?);
    for batch in data(Digits::new(1).batches(BATCH, device)).take(STEPS.iter().sum()) {
        train_step(&model, &mut optimizer, batch?)?;
    }
    profiler.finish()?;
    fs::write(file, recorder.baseline().to_json())?;
    Ok(())
}

#[instrument(skip_all)]
fn train_step(model: &Model, optimizer: &mut impl Optimizer, batch: (Tensor, Tensor)) -> candle_core::Result<Tensor> {
    let (images, labels) = batch;
    let loss = loss::cross_entropy(&model.forward_t(&images, true)?, &labels)?;
    optimizer.backward_step(&loss)?;
    Ok(loss.detach())
}

/// A layer that does more work at the end of each span of one name.
struct Planted {
    span: String,
    work: u64,
    ids: Mutex<HashSet<u64>>,
}

impl Planted {
    fn new(span: &str, work: u64) -> Self {
        Self { span: span.to_owned(), work, ids: Mutex::default() }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Planted {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, _: Context<'_, S>) {
        let mut name = attributes.metadata().name().to_owned();
        attributes.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            if field.name() == "op.name" {
                name = format!("{value:?}").trim_matches('"').to_owned();
            }
        });
        if name == self.span {
            self.ids.lock().unwrap().insert(id.into_u64());
        }
    }

    fn on_exit(&self, id: &span::Id, _: Context<'_, S>) {
        if self.ids.lock().unwrap().contains(&id.into_u64()) {
            work(self.work);
        }
    }

    fn on_close(&self, id: span::Id, _: Context<'_, S>) {
        self.ids.lock().unwrap().remove(&id.into_u64());
    }
}

/// Adds up numbers of a list that fits into the second cache.
fn work(times: u64) {
    let list = vec![1.000_1_f32; 16 << 10];
    for _ in 0..times {
        black_box(black_box(&list).iter().sum::<f32>());
    }
}

/// Trains in processes of their own, round by round.
fn record(folder: &str, rounds: u32) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let work = calibrate(folder)?;
    println!("planted work: {work}");
    let first = (0..).find(|round| !Path::new(&file(folder, "a", *round)).exists()).unwrap_or(0);
    for round in first..first + rounds {
        for (name, planted) in ROUND {
            run(&file(folder, name, round), planted.map(|span| (span, work)))?;
        }
    }
    Ok(())
}

fn file(folder: &str, name: &str, round: u32) -> String {
    format!("{folder}/{name}-{round:04}.json")
}

fn run(file: &str, planted: Option<(&str, u64)>) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    // Two threads that wait for each other on two busy cores take three times as long, or not.
    command.args(["train", file]).env("RAYON_NUM_THREADS", "1");
    if let Some((span, work)) = planted {
        command.args([span, &work.to_string()]);
    }
    if command.status()?.success() { Ok(()) } else { Err(format!("{file}: the training failed").into()) }
}

/// Returns the work that takes the planted part of a step, as measured in turns with steps.
fn calibrate(folder: &str) -> Result<u64, Box<dyn Error>> {
    const TIMES: u64 = 200;
    let file = format!("{folder}/calibration.json");
    let (mut steps, mut times) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        run(&file, None)?;
        let run = &Baseline::from_json(&fs::read(&file)?)?.runs[0];
        steps.extend((0..run.kept()).map(|step| run.durations.get(step)));
        for _ in 0..run.kept() {
            let start = Instant::now();
            work(TIMES);
            times.push(start.elapsed().as_nanos() as f64 / TIMES as f64);
        }
    }
    fs::remove_file(&file)?;
    // The least, but for a few: whatever else runs makes both longer, and not by the same factor.
    let least = |list: &mut Vec<f64>| {
        list.sort_unstable_by(f64::total_cmp);
        list[list.len() / 10]
    };
    let (step, time) = (least(&mut steps), least(&mut times));
    println!("a step takes {:?}", Duration::from_nanos(step as u64));
    Ok((PLANTED * step / time).ceil() as u64)
}

/// The runs of one side of a pair: their name, and which of how many rounds.
#[derive(Clone, Copy)]
struct Side(&'static str, usize);

/// Checks pairs of several runs a side, and prints how many are worse.
fn evaluate(folder: &str) -> Result<(), Box<dyn Error>> {
    let pool = |name: &str| -> Result<Vec<Baseline>, Box<dyn Error>> {
        let files = (0..).map(|round| file(folder, name, round)).take_while(|file| Path::new(file).exists());
        files.map(|file| Ok(Baseline::from_json(&fs::read(file)?)?)).collect()
    };
    let pools = [("a", pool("a")?), ("b", pool("b")?), ("conv2", pool("conv2")?), ("backward", pool("backward")?)];
    let of = |name: &str| &pools.iter().find(|(other, _)| *other == name).unwrap().1;
    let rounds = of("backward").len();
    println!("| runs a side | | pairs | worse | of these on the right span | cannot tell |\n|---|---|---|---|---|---|");
    for runs in [5, 10] {
        // In turns: both sides are of the same rounds. Later: the second side is of the rounds after the first.
        let kinds = [
            ("no change, in turns", Side("a", 0), Side("b", 0), None),
            ("no change, one after the other", Side("a", 0), Side("a", runs), None),
            ("no change, the other a while later", Side("a", 0), Side("a", rounds / 3), None),
            ("5 % in conv2, in turns", Side("a", 0), Side("conv2", 0), Some("conv2")),
            ("5 % in conv2, one after the other", Side("a", 0), Side("conv2", runs), Some("conv2")),
            ("5 % in backward, in turns", Side("a", 0), Side("backward", 0), Some("backward")),
            ("5 % in backward, one after the other", Side("a", 0), Side("backward", runs), Some("backward")),
        ];
        for (title, before, after, planted) in kinds {
            let (mut pairs, mut worse, mut right, mut unclear) = (0, 0, 0, 0);
            for round in 0..rounds.saturating_sub(runs - 1 + after.1) {
                let side = |side: Side| merged(&of(side.0)[round + side.1..round + side.1 + runs]);
                let check = check(&side(after), &side(before));
                pairs += 1;
                worse += u32::from(!check.is_ok());
                right += u32::from(!check.is_ok() && check.worst_span().is_some_and(|span| Some(span) == planted));
                unclear += u32::from(check.is_ok() && !check.unclear.is_empty());
                if (planted.is_none() != check.is_ok()) && std::env::var_os("VERBOSE").is_some() {
                    println!("{title}, round {round}:\n{check}");
                }
            }
            let right = planted.map_or("–".to_owned(), |_| right.to_string());
            println!("| {runs} | {title} | {pairs} | {worse} | {right} | {unclear} |");
        }
    }
    Ok(())
}

fn merged(runs: &[Baseline]) -> Baseline {
    let mut all = runs[0].clone();
    runs[1..].iter().for_each(|run| all.merge(run.clone()));
    all
}
