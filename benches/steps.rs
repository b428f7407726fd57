//! The cost of summaries of every step for the training, while the schedule waits. `cargo bench --bench steps`

mod support;

use kernspan::{Profiler, Schedule, TensorBoard};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};
use tracing::Dispatch;
use tracing_subscriber::{prelude::*, registry};

/// One turn of a measured loop.
type Turn = fn(&Profiler, u32);

const TURNS: [(&str, Turn); 5] = [
    ("a step", |profiler, _| profiler.step()),
    ("a step with two counters", |profiler, i| {
        tracing::info!(counter.loss = black_box(0.5), counter.lr = black_box(f64::from(i)));
        profiler.step();
    }),
    ("an event with a text", |_, _| tracing::info!("epoch done")),
    ("an event with four fields", |_, i| {
        tracing::info!(epoch = black_box(i), loss = black_box(0.5), lr = black_box(0.1), accuracy = black_box(0.9));
    }),
    ("a span", |_, _| drop(black_box(tracing::info_span!("plain").entered()))),
];

/// The turns of a round: as many as fit into the ring, with their counters, before its reader empties it.
const TIMES: u32 = 8_000;

fn main() -> Result<(), kernspan::Error> {
    let folder = std::env::temp_dir().join(format!("kernspan-bench-steps-{}", std::process::id()));
    let waiting = || Profiler::builder().schedule(Schedule::manual());
    let (layer, without) = waiting().build()?;
    let without_layer = Dispatch::new(registry().with(layer));
    let (layer, with) = waiting().export(TensorBoard::to_dir(&folder).samples_per_step(64)).build()?;
    let with_layer = Dispatch::new(registry().with(layer));
    let contenders = [(&without, &without_layer), (&with, &with_layer)];

    let rounds = support::rounds(60);
    println!("ns each, least of {rounds} interleaved rounds of {TIMES}\n");
    println!("{:28}{:>14}{:>18}{:>8}", "", "without", "with TensorBoard", "more");
    for (name, turn) in TURNS {
        let mut least = [f64::INFINITY; 2];
        for _ in 0..rounds {
            for ((profiler, dispatch), least) in contenders.iter().zip(&mut least) {
                let elapsed = tracing::dispatcher::with_default(dispatch, || {
                    let start = Instant::now();
                    (0..TIMES).for_each(|i| turn(black_box(profiler), i));
                    start.elapsed()
                });
                *least = least.min(elapsed.as_nanos() as f64 / f64::from(TIMES));
            }
            // Waits until the ring is empty: dropping a step would be cheaper than writing it.
            std::thread::sleep(Duration::from_millis(250));
        }
        let [without, with] = least;
        println!("{name:28}{without:>14.1}{with:>18.1}{:>+8.1}", with - without);
    }
    without.finish()?;
    println!("\n{}", with.finish()?.losses());
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}
