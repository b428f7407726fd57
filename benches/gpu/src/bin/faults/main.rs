//! Small trainings on a GPU with one planted fault each, to test advice about performance with. `faults list` prints
//! the names. `faults NAME faulty|repaired FOLDER [STEPS [LEAD]]` measures the training without a profiler, three
//! rounds of `STEPS` steps, then records a window of it to `FOLDER/NAME-faulty.kernspan`, and prints one line of JSON.
//! The difference between `faulty` and `repaired` is what repairing the fault saves. The host is ahead of the GPU by at
//! most `LEAD` steps; without it, or if it is 0, by as many as the driver allows.

mod batches;
mod custom_kernel;
mod device;
mod fault;
mod host_work;
mod layer_memory;
mod lead;
mod loader;
mod product;
mod recording;
mod rounds;
mod trainer;
mod training;

use crate::{
    fault::{FAULTS, Fault},
    recording::Recording,
    rounds::Rounds,
    trainer::Trainer,
};
use std::path::Path;

/// Any error: the program prints it and ends.
type Failure = Box<dyn std::error::Error>;

/// Steps of a round, if the command line has no number.
const STEPS: u64 = 300;

const USAGE: &str = "usage: faults list | faults NAME faulty|repaired FOLDER [STEPS [LEAD]]";

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["list"] => {
            FAULTS.iter().for_each(|fault| println!("{}", fault.name));
            Ok(())
        }
        [name, variant, folder] => run(name, variant, folder, STEPS, 0),
        [name, variant, folder, steps] => run(name, variant, folder, steps.parse()?, 0),
        [name, variant, folder, steps, lead] => run(name, variant, folder, steps.parse()?, lead.parse()?),
        _ => Err(USAGE.into()),
    }
}

/// Measures and records one variant of a training, and prints its times.
fn run(name: &str, variant: &str, folder: &str, steps: u64, lead: usize) -> Result<(), Failure> {
    let fault = Fault::named(name).ok_or_else(|| format!("unknown fault {name:?}: see `faults list`"))?;
    let faulty = match variant {
        "faulty" => true,
        "repaired" => false,
        _ => return Err(USAGE.into()),
    };
    if steps == 0 {
        return Err("the number of steps must be at least 1".into());
    }
    eprintln!("{name}, {variant}: {}", fault.description);
    let training = (fault.training)(faulty);
    let all_steps = Rounds::all_steps(steps) + Recording::all_steps(&training);
    let mut trainer = Trainer::new(training, all_steps, lead)?;
    // Nothing subscribes to spans yet, so the times are those of a program without a profiler.
    let rounds = Rounds::measure(&mut trainer, steps)?;
    let file = Path::new(folder).join(format!("{name}-{variant}.kernspan"));
    let recording = Recording::make(&mut trainer, &file)?;
    println!(
        "{{\"fault\":{name:?},\"variant\":{variant:?},\"step_ns\":{},\"rounds_ns\":{:?},\"samples_per_step\":{},\
         \"recorded_steps\":{},\"kernels\":{},\"losses\":{:?}}}",
        rounds.median(),
        rounds.nanoseconds,
        trainer.training().samples,
        recording.steps,
        recording.kernels,
        recording.losses,
    );
    if recording.losses.is_empty() { Ok(()) } else { Err(recording.losses.into()) }
}
