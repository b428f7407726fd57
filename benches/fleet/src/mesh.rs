//! A training on a mesh of ranks, simulated: data × tensor × pipeline parallelism, with one planted fault or none.
//!
//! A step of a rank: load a batch (first stage), receive activations, forward layers, each followed by a collective of
//! its tensor group, send, receive gradients, backward layers, send, collectives of its data group, optimizer. A rank
//! that arrives at a collective waits for the last one; all end together, up to the skew of the protocol.

/// Uniform numbers, by the SplitMix64 generator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number from 0 to 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A time, with noise: mostly within 3 %, and rarely, as when something else runs on the host, up to twice as long.
    fn noisy(&mut self, nanos: u64) -> u64 {
        let noise = (self.part() + self.part() - 1.0) * 0.03;
        let spike = if self.below(2000) == 0 { self.part() } else { 0.0 };
        (nanos as f64 * (1.0 + noise + spike)) as u64
    }
}

/// A fault of one rank, or of the link of one tensor group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    BackwardGpu,
    Loader,
    Optimizer,
    /// The host sleeps in the forward pass of every fifth step.
    Sleep,
    /// Collectives of a tensor group take longer. No span of its ranks does.
    Link,
    /// Each replica computes for longer by another part in each step, as with sequences of different lengths.
    Sequences,
}

impl Fault {
    pub(crate) const ALL: [Self; 6] =
        [Self::BackwardGpu, Self::Loader, Self::Optimizer, Self::Sleep, Self::Link, Self::Sequences];

    /// The span that is to be named, and whether it is its GPU time.
    pub(crate) fn span(self) -> Option<(&'static str, bool)> {
        match self {
            Self::BackwardGpu => Some((PATHS[BACKWARD], true)),
            Self::Loader => Some((PATHS[LOADER], false)),
            Self::Optimizer => Some((PATHS[OPTIMIZER], false)),
            Self::Sleep => Some((PATHS[FORWARD], false)),
            Self::Link | Self::Sequences => None,
        }
    }
}

pub(crate) const PATHS: [&str; 5] = ["step", "step;loader", "step;forward", "step;backward", "step;optimizer"];
const LOADER: usize = 1;
const FORWARD: usize = 2;
const BACKWARD: usize = 3;
const OPTIMIZER: usize = 4;

/// The shape of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mesh {
    pub(crate) data: usize,
    pub(crate) tensor: usize,
    pub(crate) stages: usize,
    pub(crate) steps: u64,
    /// The layers of a stage, each with a collective of its tensor group in either direction.
    pub(crate) layers: usize,
    /// The collectives of a data group at the end of a step.
    pub(crate) buckets: usize,
    /// The fault, the rank that has it, and its time as a part of a step.
    pub(crate) fault: Option<(Fault, usize, f64)>,
    pub(crate) seed: u64,
}

/// The time of a rank at a collective: its rank, its arrival on the true clock, and how long it takes part.
pub(crate) type Arrival = (u32, u64, u64);

/// Takes what happens, step by step.
pub(crate) trait Sink {
    fn collective(&mut self, step: u64, group: &Group, number: u32, ranks: &[Arrival]);
    /// One rank sends to another: the sender first.
    fn exchange(&mut self, step: u64, number: u32, ranks: [Arrival; 2]);
    /// The host and GPU time of a rank at each of [`PATHS`].
    fn step(&mut self, step: u64, rank: u32, start: u64, end: u64, spans: &[[u64; 2]; PATHS.len()]);
}

/// A group of ranks.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) ranks: Vec<usize>,
    /// The size of each collective.
    pub(crate) bytes: u64,
}

const LOAD: u64 = 1_000_000;
const LAYER: u64 = 400_000;
const TENSOR_TRANSFER: u64 = 60_000;
const DATA_TRANSFER: u64 = 500_000;
const SEND: u64 = 100_000;
const UPDATE: u64 = 800_000;
/// The ends of a collective differ by up to this on its ranks: the median over sockets was 2 to 100 µs.
const SKEW: u64 = 10_000;

/// The state of the ranks within a step.
struct State {
    random: Random,
    now: Vec<u64>,
    spans: Vec<[[u64; 2]; PATHS.len()]>,
    /// How much longer everything takes on a rank, for good.
    speed: Vec<f64>,
    /// How much longer computing takes on a rank in this step.
    lengths: Vec<f64>,
}

impl State {
    fn compute(&mut self, rank: usize, path: usize, nanos: u64, extra: u64) {
        let time = (self.random.noisy(nanos) as f64 * self.speed[rank] * self.lengths[rank]) as u64 + extra;
        self.now[rank] += time;
        self.spans[rank][path][1] += time;
        self.spans[rank][path][0] += time / 10;
    }

    fn host(&mut self, rank: usize, path: usize, nanos: u64, extra: u64) {
        let time = self.random.noisy(nanos) + extra;
        self.now[rank] += time;
        self.spans[rank][path][0] += time;
    }

    /// All ranks of a group exchange data, and end together.
    fn join(&mut self, group: &Group, transfer: u64) -> Vec<Arrival> {
        let end = group.ranks.iter().map(|&rank| self.now[rank]).max().unwrap_or(0) + self.random.noisy(transfer);
        let mut arrivals = Vec::with_capacity(group.ranks.len());
        for &rank in &group.ranks {
            let (start, end) = (self.now[rank], end + self.random.below(SKEW));
            arrivals.push((rank as u32, start, end - start));
            self.now[rank] = end;
        }
        arrivals
    }

    /// A rank passes something on to another.
    fn pass(&mut self, from: usize, to: usize) -> [Arrival; 2] {
        let end = self.now[from].max(self.now[to]) + self.random.noisy(SEND);
        [from, to].map(|rank| {
            let start = std::mem::replace(&mut self.now[rank], end);
            (rank as u32, start, end - start)
        })
    }
}

impl Mesh {
    pub(crate) fn ranks(&self) -> usize {
        self.data * self.tensor * self.stages
    }

    pub(crate) fn rank(&self, stage: usize, data: usize, tensor: usize) -> usize {
        (stage * self.data + data) * self.tensor + tensor
    }

    /// Returns the ranks of the tensor group of a rank.
    pub(crate) fn tensor_group(&self, rank: usize) -> std::ops::Range<usize> {
        let first = rank / self.tensor * self.tensor;
        first..first + self.tensor
    }

    /// The length of a step without noise.
    fn nominal_step(&self) -> u64 {
        let layers = 2 * self.stages as u64 * self.layers as u64;
        let tensor = if self.tensor > 1 { TENSOR_TRANSFER } else { 0 };
        let sends = if self.stages > 1 { 2 * self.stages as u64 * SEND } else { 0 };
        LOAD + layers * (LAYER * 3 / 2 + tensor) + sends + self.buckets as u64 * DATA_TRANSFER + UPDATE
    }

    pub(crate) fn simulate(&self, sink: &mut impl Sink) {
        let mut random = Random(self.seed);
        let speed = (0..self.ranks()).map(|_| 1.0 + random.part() * 0.005).collect();
        let mut state =
            State { random, now: vec![0; self.ranks()], spans: Vec::new(), speed, lengths: vec![1.0; self.ranks()] };
        let (stages, datas, tensors) = (0..self.stages, 0..self.data, 0..self.tensor);
        let tensor_groups: Vec<Vec<Group>> = stages
            .clone()
            .map(|stage| {
                let group = |data| Group {
                    name: format!("tensor-{stage}-{data}"),
                    ranks: tensors.clone().map(|tensor| self.rank(stage, data, tensor)).collect(),
                    bytes: 1 << 20,
                };
                datas.clone().map(group).collect()
            })
            .collect();
        let data_group = |stage: usize, tensor: usize| Group {
            name: format!("data-{stage}-{tensor}"),
            ranks: datas.clone().map(|data| self.rank(stage, data, tensor)).collect(),
            bytes: 64 << 20,
        };
        let data_groups: Vec<_> = stages.clone().flat_map(|stage| tensors.clone().map(move |it| (stage, it))).collect();
        let data_groups: Vec<_> = data_groups.into_iter().map(|(stage, tensor)| data_group(stage, tensor)).collect();
        let (kind, culprit, part) =
            self.fault.map_or((None, usize::MAX, 0.0), |(fault, rank, part)| (Some(fault), rank, part));
        let lost = (self.nominal_step() as f64 * part) as u64;
        let extra = |fault: Fault, rank: usize| if kind == Some(fault) && rank == culprit { lost } else { 0 };
        for step in 0..self.steps {
            if kind == Some(Fault::Sequences) {
                let lengths: Vec<_> = datas.clone().map(|_| 1.0 + (0.5 + 2.0 * part) * state.random.part()).collect();
                state.lengths = (0..self.ranks()).map(|rank| lengths[rank / self.tensor % self.data]).collect();
            }
            state.spans = vec![Default::default(); self.ranks()];
            let starts = state.now.clone();
            for rank in 0..self.data * self.tensor {
                state.host(rank, LOADER, LOAD, extra(Fault::Loader, rank));
            }
            for is_backward in [false, true] {
                let path = if is_backward { BACKWARD } else { FORWARD };
                let time = if is_backward { 2 * LAYER } else { LAYER };
                for index in stages.clone() {
                    let stage = if is_backward { self.stages - 1 - index } else { index };
                    for group in &tensor_groups[stage] {
                        if index > 0 {
                            let behind = self.data * self.tensor;
                            for &rank in &group.ranks {
                                let from = if is_backward { rank + behind } else { rank - behind };
                                let passed = state.pass(from, rank);
                                sink.exchange(step, u32::from(is_backward), passed);
                            }
                        }
                        self.layers(&mut state, sink, step, group, (path, time, is_backward), &extra);
                    }
                }
            }
            for number in 0..self.buckets {
                for group in data_groups.iter().filter(|group| group.ranks.len() > 1) {
                    let arrivals = state.join(group, DATA_TRANSFER);
                    sink.collective(step, group, number as u32, &arrivals);
                }
            }
            for (rank, &start) in starts.iter().enumerate() {
                state.host(rank, OPTIMIZER, UPDATE, extra(Fault::Optimizer, rank));
                sink.step(step, rank as u32, start, state.now[rank], &state.spans[rank]);
            }
        }
    }

    /// The layers of one stage, in one direction, on the ranks of a tensor group.
    fn layers(
        &self,
        state: &mut State,
        sink: &mut impl Sink,
        step: u64,
        group: &Group,
        (path, time, is_backward): (usize, u64, bool),
        extra: &impl Fn(Fault, usize) -> u64,
    ) {
        let is_slow = group.ranks.iter().map(|&rank| extra(Fault::Link, rank)).max().unwrap_or(0);
        let transfer = TENSOR_TRANSFER + is_slow / (2 * self.layers as u64);
        for layer in 0..self.layers {
            for &rank in &group.ranks {
                let sleeps = layer == 0 && !is_backward && step % 5 == 2;
                if sleeps {
                    state.host(rank, path, 0, 5 * extra(Fault::Sleep, rank));
                }
                let more = if is_backward { extra(Fault::BackwardGpu, rank) / self.layers as u64 } else { 0 };
                state.compute(rank, path, time, more);
            }
            if group.ranks.len() > 1 {
                let arrivals = state.join(group, transfer);
                let number = layer + if is_backward { self.layers } else { 0 };
                sink.collective(step, group, number as u32, &arrivals);
            }
        }
    }
}
