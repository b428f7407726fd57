//! A text classifier that reads documents, which are tokenized on the host.

use crate::{
    cases::{Burn, CLASSES, Result, Setup, Sizes, Step, forever},
    encoder::Encoder,
    models::Trainer,
};
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use kernspan_burn::data;
use std::{collections::HashMap, fmt::Write, time::Instant};
use tracing::{info_span, instrument};
use trainings_runner::{Framework, Random, Variant, workers};

/// The threads that tokenize ahead of the loop. With as many words as calibrated, two would do if they were
/// never interrupted.
const WORKERS: u64 = 4;

/// Returns the number of words and pieces of words that have a vector.
fn vocabulary_size(setup: &Setup) -> usize {
    setup.size(32 << 10, 64)
}

/// A transformer on frozen word vectors. Documents are tokenized in the loop, or by workers.
pub(crate) fn tokenized(setup: &Setup, variant: Variant) -> Result<Step> {
    let device = setup.device.clone();
    let mut train = classifier(setup);
    let corpus = |seed: u64| Corpus::new(setup, seed, setup.size(setup.amount, 8));
    let mut load: Box<dyn FnMut() -> Tokens> = if variant == Variant::Fault {
        let mut corpus = corpus(1);
        Box::new(move || corpus.tokens())
    } else {
        let load = |seed: u64| {
            let mut corpus = corpus(seed);
            move || corpus.tokens()
        };
        Box::new(workers::spawn((0..WORKERS).map(load).collect()))
    };
    let mut batches = data(std::iter::repeat_with(move || load().upload(&device)));
    Ok(forever(move || {
        let (ids, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        train(ids, labels);
    }))
}

/// Returns the words of a document with which tokenizing takes one and a quarter times as long as the rest of a step.
pub(crate) fn words(setup: &Setup) -> Result<usize> {
    const WORDS: usize = 128;
    let device = setup.device.clone();
    let mut train = classifier(setup);
    let mut corpus = Corpus::new(setup, 0, WORDS);
    let tokens = corpus.tokens();
    let mut step = forever(move || {
        let (ids, labels) = tokens.clone().upload(&device);
        train(ids, labels);
    });
    trainings_runner::mean(setup, &mut step, Burn::WARM_UP)?;
    let step_us = trainings_runner::mean(setup, &mut step, 30)?;
    let start = Instant::now();
    (0..4).for_each(|_| drop(corpus.tokens()));
    let tokens_us = start.elapsed().as_secs_f64() * 1e6 / 4.0;
    Ok(((WORDS as f64 * 1.25 * step_us / tokens_us) as usize).max(WORDS))
}

/// Returns a step of the classifier.
fn classifier(setup: &Setup) -> impl FnMut(Tensor<2, Int>, Tensor<1, Int>) + 'static {
    let width = setup.width();
    let vectors = Tensor::<2>::random([vocabulary_size(setup), width], Distribution::Normal(0.0, 1.0), &setup.device);
    let mut trainer = Trainer::new(Encoder::new(setup), &setup.device);
    move |ids, labels| {
        let x = info_span!("embed").in_scope(|| {
            let [documents, length] = ids.dims();
            let ids = ids.reshape([documents * length]);
            vectors.clone().select(0, ids).reshape([documents, length, width])
        });
        let logits = trainer.model().forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }
}

/// Tokens with labels, on the host.
#[derive(Clone, Debug)]
struct Tokens {
    ids: TensorData,
    labels: TensorData,
}

impl Tokens {
    fn upload(self, device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
        (Tensor::from_data(self.ids, device), Tensor::from_data(self.labels, device))
    }
}

/// Documents of random words, and a tokenizer for them.
#[derive(Debug)]
struct Corpus {
    random: Random,
    documents: Vec<String>,
    /// The numbers of words and of pieces of words.
    vocabulary: HashMap<String, i32>,
    /// The tokens of a document that the model sees.
    length: usize,
}

impl Corpus {
    /// Makes documents of this many words each.
    fn new(setup: &Setup, seed: u64, words: usize) -> Self {
        let (size, [count, length, _]) = (vocabulary_size(setup), Encoder::shape(setup));
        let mut random = Random::new(seed + 11);
        let mut vocabulary = HashMap::new();
        while vocabulary.len() < size {
            let letters = 1 + vocabulary.len() * 6 / size + random.below(3);
            let piece = (0..letters).map(|_| letter(&mut random)).collect();
            let number = vocabulary.len() as i32;
            vocabulary.entry(piece).or_insert(number);
        }
        let document = |_| {
            let mut text = String::new();
            for _ in 0..words {
                let letters = 2 + random.below(9);
                let word: String = (0..letters).map(|_| letter(&mut random)).collect();
                write!(text, "{word}{}", [" ", " ", " ", ", ", ". "][random.below(5)]).expect("memory");
            }
            text
        };
        let documents = (0..count).map(document).collect();
        Self { random, documents, vocabulary, length }
    }

    /// Tokenizes all documents, and cuts them to the same length.
    #[instrument(name = "tokenize", skip_all)]
    fn tokens(&mut self) -> Tokens {
        let (count, length) = (self.documents.len(), self.length);
        let mut ids = Vec::with_capacity(count * length);
        for document in &self.documents {
            let mut tokens = self.encode(document);
            tokens.resize(length, 0);
            ids.append(&mut tokens);
        }
        let labels: Vec<i32> = (0..count).map(|_| self.random.below(CLASSES) as i32).collect();
        Tokens { ids: TensorData::new(ids, [count, length]), labels: TensorData::new(labels, [count]) }
    }

    /// Splits a text into the longest pieces that the vocabulary has, as WordPiece does.
    fn encode(&self, text: &str) -> Vec<i32> {
        let text = text.to_lowercase();
        let mut tokens = Vec::new();
        for mut word in text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()) {
            while !word.is_empty() {
                let longest = (1..=word.len()).rev().find_map(|end| Some((end, *self.vocabulary.get(&word[..end])?)));
                let (end, token) = longest.unwrap_or((1, 0));
                tokens.push(token);
                word = &word[end..];
            }
        }
        tokens
    }
}

fn letter(random: &mut Random) -> char {
    char::from(b'a' + random.below(26) as u8)
}
