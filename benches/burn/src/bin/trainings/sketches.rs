//! A classifier of sketches, which are stored as strokes and drawn on the host.

use crate::{
    calibration::repetitions,
    cases::{CLASSES, Result, Setup, Sizes, Step, forever},
    models::{Mlp, Trainer},
};
use burn::tensor::{Device, Int, Tensor, TensorData};
use kernspan_burn::data;
use std::sync::mpsc;
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant};

/// An MLP on sketches that another thread draws. The loop asks for a batch when it needs it, or a step earlier.
pub(crate) fn drawn(setup: &Setup, variant: Variant) -> Result<Step> {
    let device = setup.device.clone();
    let (ask, asked) = mpsc::channel::<()>();
    let (answer, answered) = mpsc::channel();
    let mut artist = Artist::new(setup, setup.size(setup.amount, 2));
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    // The thread ends when the loop is dropped, which asks.
    let draw = move || asked.into_iter().all(|()| answer.send(artist.draw()).is_ok());
    std::thread::spawn(move || tracing::dispatcher::with_default(&dispatch, draw));
    if variant == Variant::Fixed {
        ask.send(())?;
    }
    let mut batches = data(std::iter::repeat_with(move || {
        let ask = || ask.send(()).expect("a thread that draws");
        if variant == Variant::Fault {
            ask();
        }
        let sketches = answered.recv().expect("a thread that draws");
        if variant == Variant::Fixed {
            ask();
        }
        sketches.upload(&device)
    }));
    let mut train = classifier(setup);
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        train(x, labels);
    }))
}

/// Returns the strokes of a sketch with which drawing a batch takes most of the time of a step: a thread can keep up
/// with that.
pub(crate) fn strokes(setup: &Setup) -> Result<usize> {
    const STROKES: usize = 8;
    let (device, mut train) = (setup.device.clone(), classifier(setup));
    let mut artist = Artist::new(setup, STROKES);
    let sketches = artist.draw();
    let step = forever(move || {
        let (x, labels) = sketches.clone().upload(&device);
        train(x, labels);
    });
    let batches = repetitions(setup, 0.7, step, || drop(artist.draw()))?;
    Ok((STROKES as f64 * batches).round().max(1.0) as usize)
}

/// Returns a step of the classifier.
fn classifier(setup: &Setup) -> impl FnMut(Tensor<2>, Tensor<1, Int>) + use<> {
    let mut trainer = Trainer::new(Mlp::new(setup.width(), 6, CLASSES, &setup.device), &setup.device);
    move |x, labels| {
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }
}

/// Sketches with labels, on the host.
#[derive(Clone, Debug)]
struct Sketches {
    pixels: TensorData,
    labels: TensorData,
}

impl Sketches {
    fn upload(self, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        (Tensor::from_data(self.pixels, device), Tensor::from_data(self.labels, device))
    }
}

/// Draws sketches of random strokes.
#[derive(Debug)]
struct Artist {
    random: Random,
    batch: usize,
    /// The width and height of a sketch. Its pixels are the inputs of a layer.
    side: usize,
    strokes: usize,
}

impl Artist {
    fn new(setup: &Setup, strokes: usize) -> Self {
        Self { random: Random::new(85), batch: setup.batch(), side: setup.width().isqrt(), strokes }
    }

    #[instrument(name = "draw_sketches", skip_all)]
    fn draw(&mut self) -> Sketches {
        let (side, strokes) = (self.side, self.strokes);
        let mut pixels = vec![0_f32; self.batch * side * side];
        for sketch in pixels.chunks_mut(side * side) {
            let mut place = || [0, 1].map(|_| self.random.uniform() * (side - 1) as f32);
            let mut start = place();
            for _ in 0..strokes {
                let end = place();
                for point in 0..side {
                    let share = point as f32 / side as f32;
                    let [row, column] = [0, 1].map(|axis| (start[axis] + share * (end[axis] - start[axis])) as usize);
                    sketch[row * side + column] = 1.0;
                }
                start = end;
            }
        }
        let labels: Vec<i32> = (0..self.batch).map(|_| self.random.below(CLASSES) as i32).collect();
        Sketches {
            pixels: TensorData::new(pixels, [self.batch, side * side]),
            labels: TensorData::new(labels, [self.batch]),
        }
    }
}
