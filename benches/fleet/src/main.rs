//! Generates runs of many ranks with planted faults, and counts how often the late rank is named; or writes their
//! tables.
//!
//! ```text
//! fleet judge RANKS FIRST_SEED LAST_SEED    in memory: a run with a fault and one without for each seed
//! fleet tables DIR RANKS SEED               20 steps of 200 collectives; some ranks are lost, one file is truncated
//! ```

mod mesh;

use kernspan::analysis::{RankComparison, RankWaits};
use kernspan_parquet::{Tables, schema};
use mesh::{Arrival, Fault, Group, Mesh, PATHS, Random, Sink};
use std::{collections::BTreeMap, error::Error, fs, path::Path, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["judge", ranks, first, last] => judge(ranks.parse()?, first.parse()?, last.parse()?),
        ["tables", folder, ranks, seed] => write_tables(Path::new(folder), ranks.parse()?, seed.parse()?)?,
        _ => return Err("usage: fleet judge RANKS FIRST_SEED LAST_SEED | fleet tables DIR RANKS SEED".into()),
    }
    Ok(())
}

/// Returns a mesh of so many ranks: the shape, the fault, its rank and its size follow from the seed.
fn mesh(ranks: usize, seed: u64, with_fault: bool) -> Mesh {
    let mut random = Random(seed.wrapping_mul(2) + u64::from(with_fault));
    let pick = |random: &mut Random, sizes: &[usize], of: usize| {
        let sizes: Vec<_> = sizes.iter().copied().filter(|size| of.is_multiple_of(*size) && of / size > 1).collect();
        sizes.get(random.below(sizes.len() as u64) as usize).copied().unwrap_or(1)
    };
    let tensor = pick(&mut random, &[1, 2, 4, 8], ranks);
    let stages = pick(&mut random, &[1, 2, 5], ranks / tensor);
    let data = ranks / tensor / stages;
    let layers = 4;
    let mut mesh = Mesh { data, tensor, stages, steps: 10, layers, buckets: 4, fault: None, seed: random.next() };
    if with_fault {
        let mut fault = Fault::ALL[random.below(5) as usize];
        if tensor == 1 && fault == Fault::Link {
            fault = Fault::BackwardGpu;
        }
        // Host work between steps is hidden on all stages but the first, since they wait for activations.
        let stage = match fault {
            Fault::Loader | Fault::Optimizer => 0,
            _ => random.below(stages as u64) as usize,
        };
        let (data, tensor) = (random.below(data as u64) as usize, random.below(tensor as u64) as usize);
        mesh.fault = Some((fault, mesh.rank(stage, data, tensor), 0.1 + 0.2 * random.part()));
    }
    mesh
}

/// Compares ranks as they are simulated.
struct Comparison {
    ranks: RankComparison,
    /// Ranks whose traces are lost.
    lost: Vec<bool>,
    spans: Vec<[[u64; 2]; PATHS.len()]>,
}

impl Sink for Comparison {
    fn collective(&mut self, step: u64, group: &Group, _: u32, ranks: &[Arrival]) {
        let kept = ranks.iter().filter(|(rank, ..)| !self.lost[*rank as usize]);
        let ranks: Vec<_> = kept.map(|&(rank, _, time)| (rank, Duration::from_nanos(time))).collect();
        self.ranks.add_collective(step, &group.name, &ranks);
    }

    fn exchange(&mut self, step: u64, _: u32, (rank, _, time): Arrival) {
        if !self.lost[rank as usize] {
            self.ranks.add_exchange(step, rank, Duration::from_nanos(time));
        }
    }

    fn step(&mut self, step: u64, rank: u32, start: u64, end: u64, spans: &[[u64; 2]; PATHS.len()]) {
        if self.lost[rank as usize] {
            return;
        }
        self.ranks.add_step(rank, step, Duration::from_nanos(end - start));
        let sums = &mut self.spans[rank as usize];
        for (sums, times) in sums.iter_mut().zip(spans) {
            *sums = [sums[0] + times[0], sums[1] + times[1]];
        }
    }
}

fn compared(mesh: &Mesh) -> RankWaits {
    let mut random = Random(mesh.seed ^ 1);
    let is_culprit = |rank: usize| mesh.fault.is_some_and(|(_, culprit, _)| culprit == rank);
    let lost = (0..mesh.ranks()).map(|rank| random.below(100) == 0 && !is_culprit(rank)).collect();
    let mut sink = Comparison { ranks: RankComparison::default(), lost, spans: vec![Default::default(); mesh.ranks()] };
    for rank in (0..mesh.ranks()).filter(|&rank| !sink.lost[rank]) {
        sink.ranks.add_rank(rank as u32, mesh.ranks() as u32, "");
    }
    mesh.simulate(&mut sink);
    sink.ranks.late();
    for (index, path) in PATHS.iter().enumerate() {
        let times = sink.spans.iter().enumerate().filter(|(rank, _)| !sink.lost[*rank]);
        let times: Vec<_> = times.map(|(rank, spans)| (rank as u32, spans[index].map(Duration::from_nanos))).collect();
        sink.ranks.add_place(&schema::split_path(path), None, &times);
    }
    sink.ranks.finish()
}

/// Returns whether a fault was found: its rank and no other, its span, and host or GPU. For a slow link, only ranks of
/// its group, and no span.
fn is_right(mesh: &Mesh, waits: &RankWaits) -> bool {
    let Some((fault, culprit, _)) = mesh.fault else { return waits.late().is_empty() };
    let named: Vec<_> = waits.late().iter().map(|late| late.rank as usize).collect();
    match fault.span() {
        Some((path, on_gpu)) => {
            named == [culprit]
                && waits.late()[0]
                    .cause
                    .as_ref()
                    .is_some_and(|cause| cause.path == schema::split_path(path) && cause.on_gpu == on_gpu)
        }
        None => {
            let group = mesh.tensor_group(culprit);
            !named.is_empty()
                && named.iter().all(|rank| group.contains(rank))
                && waits.late().iter().all(|late| late.cause.is_none())
        }
    }
}

fn judge(ranks: usize, first: u64, last: u64) {
    let mut right: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for seed in first..=last {
        for with_fault in [true, false] {
            let mesh = mesh(ranks, seed, with_fault);
            let waits = compared(&mesh);
            let name = mesh.fault.map_or("none".to_owned(), |(fault, ..)| format!("{fault:?}"));
            let count = right.entry(name).or_default();
            count.1 += 1;
            if is_right(&mesh, &waits) {
                count.0 += 1;
            } else {
                println!("seed {seed}: {mesh:?}");
                waits.late().iter().take(3).for_each(|late| println!("  {late}"));
            }
        }
    }
    println!("{ranks} ranks, seeds {first} to {last}");
    for (fault, (right, all)) in right {
        println!("{fault:12} {right:4} of {all}");
    }
}

/// Adds rows to tables, with the clock of each node, and writes them when there are many.
struct Writer<'a> {
    folder: &'a Path,
    /// The tables of some nodes each.
    tables: Vec<Tables>,
    /// The offset of each node's clock, in nanoseconds, and its drift, in parts per billion.
    clocks: Vec<(i64, i64)>,
    lost: Vec<bool>,
    problem: Option<kernspan_parquet::TableError>,
}

impl Writer<'_> {
    const RANKS_PER_NODE: usize = 8;
    const RANKS_PER_FILE: usize = 80;
    /// The steps between two writes, so that rows of all ranks fit into memory.
    const STEPS_PER_FILE: u64 = 5;
    const START: i64 = 1_700_000_000_000_000_000;

    fn clock(&self, rank: u32, at: u64) -> i64 {
        let (offset, drift) = self.clocks[rank as usize / Self::RANKS_PER_NODE];
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        Self::START + at + offset + at / 1000 * drift / 1_000_000
    }

    fn row(&mut self, step: u64, group: &str, number: u32, is_pairwise: bool, (rank, start, time): Arrival) {
        if self.lost[rank as usize] {
            return;
        }
        let operation = if is_pairwise { "sendrecv" } else { "allreduce" };
        let (from, to) = (self.clock(rank, start), self.clock(rank, start + time));
        self.tables[rank as usize / Self::RANKS_PER_FILE].rows(&schema::COLLECTIVES).push(&[
            rank.into(),
            step.into(),
            from.into(),
            (to - from).into(),
            group.into(),
            number.into(),
            operation.into(),
            is_pairwise.into(),
            "BFloat16".into(),
            (1 << 20).into(),
            0.into(),
            0.into(),
            PATHS[3].into(),
        ]);
    }
}

impl Sink for Writer<'_> {
    fn collective(&mut self, step: u64, group: &Group, number: u32, ranks: &[Arrival]) {
        ranks.iter().for_each(|&rank| self.row(step, &group.name, number, false, rank));
    }

    fn exchange(&mut self, step: u64, number: u32, rank: Arrival) {
        self.row(step, "pipeline", number, true, rank);
    }

    fn step(&mut self, step: u64, rank: u32, start: u64, end: u64, spans: &[[u64; 2]; PATHS.len()]) {
        if self.lost[rank as usize] {
            return;
        }
        let (from, to) = (self.clock(rank, start), self.clock(rank, end));
        let tables = &mut self.tables[rank as usize / Self::RANKS_PER_FILE];
        let cells = [rank.into(), step.into(), from.into(), (to - from).into(), true.into(), true.into(), 0.into()];
        tables.rows(&schema::STEPS).push(&cells);
        for (path, &[host, gpu]) in PATHS.iter().zip(spans) {
            let name = path.rsplit(';').next().unwrap_or(path);
            let cells = [rank.into(), step.into(), (*path).into(), name.into(), "".into(), 1.into(), host.into()];
            let more = [host.into(), host.into(), gpu.into(), 0.into(), from.into()];
            tables.rows(&schema::SPANS).push(&[&cells[..], &more].concat());
        }
        let is_last = rank as usize + 1 == self.lost.len();
        if is_last && (step + 1).is_multiple_of(Self::STEPS_PER_FILE) {
            for tables in &mut self.tables {
                self.problem = tables.write(self.folder).err().or(self.problem.take());
            }
        }
    }
}

fn write_tables(folder: &Path, ranks: usize, seed: u64) -> Result<(), Box<dyn Error>> {
    let mut random = Random(seed);
    let (tensor, stages) = if ranks >= 1000 { (8, 5) } else { (2, 2) };
    let data = ranks / tensor / stages;
    let culprit = random.below((data * tensor) as u64) as usize;
    let fault = Some((Fault::Loader, culprit, 0.2));
    // 180 collectives of the tensor group, 16 of the data group, and four exchanges.
    let mesh = Mesh { data, tensor, stages, steps: 20, layers: 90, buckets: 16, fault, seed };
    let nodes = mesh.ranks().div_ceil(Writer::RANKS_PER_NODE);
    let offset = |random: &mut Random| random.below(100_000_001) as i64 - 50_000_000;
    let drift = |random: &mut Random| random.below(40_001) as i64 - 20_000;
    let clocks = (0..nodes).map(|_| (offset(&mut random), drift(&mut random))).collect();
    let lost: Vec<_> = (0..mesh.ranks()).map(|rank| random.below(1000) == 0 && rank != culprit).collect();
    let tables = (0..mesh.ranks().div_ceil(Writer::RANKS_PER_FILE)).map(|_| Tables::new("fleet")).collect();
    let mut writer = Writer { folder, tables, clocks, lost, problem: None };
    for rank in (0..mesh.ranks()).filter(|&rank| !writer.lost[rank]) {
        let node = format!("node-{}", rank / Writer::RANKS_PER_NODE);
        let start = writer.clock(rank as u32, 0);
        let rank = [(rank as u64).into(), start.into(), 0.into(), 0.into(), (mesh.ranks() as u64).into()];
        let more = [(*node).into(), 1.into(), "".into(), mesh.steps.into(), 0.into()];
        writer.tables[0].rows(&schema::RANKS).push(&[&rank[..], &more].concat());
    }
    mesh.simulate(&mut writer);
    if let Some(problem) = writer.problem {
        return Err(problem.into());
    }
    // The last file of spans is truncated, as by a full disk.
    let spans = fs::read_dir(folder.join("spans/run=fleet"))?.flatten().map(|entry| entry.path()).max();
    if let Some(file) = spans {
        let bytes = fs::read(&file)?;
        fs::write(&file, &bytes[..bytes.len() / 2])?;
    }
    println!(
        "{} ranks, {} lost, rank {culprit} has a slow loader",
        mesh.ranks(),
        writer.lost.iter().filter(|it| **it).count()
    );
    Ok(())
}
