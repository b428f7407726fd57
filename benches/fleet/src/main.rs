//! Generates runs of many ranks with planted faults, and counts how often the late rank is named; or writes their
//! tables.
//!
//! ```text
//! fleet judge RANKS FIRST_SEED LAST_SEED    in memory: a run with a fault and one without for each seed
//! fleet files SEEDS DIR RANKS FIRST LAST    the same with trace files in DIR, made of the recorded ranks in SEEDS
//! fleet tables DIR RANKS SEED               20 steps of 200 collectives; some ranks are lost, one file is truncated
//! ```

mod clocks;
mod files;
mod mesh;

use clocks::Clocks;
use kernspan::{
    analysis::{
        ClockOffsets, CollectiveFlow, CollectiveOperation, LinkComparison, RankComparison, RankWaits, SlowLink,
        UnevenWork, WorkBalance,
    },
    trace::Timestamp,
};
use kernspan_parquet::{Tables, schema};
use mesh::{Arrival, Fault, Group, Mesh, PATHS, Random, Sink};
use std::{collections::BTreeMap, error::Error, fs, path::Path, time::Duration};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["judge", ranks, first, last] => judge(ranks.parse()?, first.parse()?, last.parse()?),
        ["tables", folder, ranks, seed] => write_tables(Path::new(folder), ranks.parse()?, seed.parse()?)?,
        ["files", seeds, folder, ranks, first, last] => {
            files::judge(Path::new(seeds), Path::new(folder), ranks.parse()?, first.parse()?, last.parse()?)?;
        }
        _ => {
            return Err(
                "usage: fleet judge RANKS FIRST LAST | files SEEDS DIR RANKS FIRST LAST | tables DIR RANKS SEED".into(),
            );
        }
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
        let mut fault = Fault::ALL[random.below(Fault::ALL.len() as u64) as usize];
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
    links: LinkComparison,
    balance: WorkBalance,
    offsets: ClockOffsets,
    clocks: Clocks,
    random: Random,
    /// Ranks whose traces are lost.
    lost: Vec<bool>,
    waits: Vec<u64>,
    spans: Vec<[[u64; 2]; PATHS.len()]>,
    end: u64,
}

impl Comparison {
    /// Timestamps are off by up to so many nanoseconds, either way.
    const JITTER: u64 = 2000;

    fn add_clocks(&mut self, flow: CollectiveFlow, ranks: &[Arrival]) {
        let mut read = |rank: u32, at: u64| {
            let jitter = self.random.below(2 * Self::JITTER + 1) as i64 - Self::JITTER as i64;
            Timestamp::from_unix_nanos((self.clocks.read(rank, at) + jitter).unsigned_abs())
        };
        let times = ranks.iter().map(|&(rank, start, time)| (rank, read(rank, start), read(rank, start + time)));
        let times: Vec<_> = times.collect();
        self.offsets.add(flow, &times);
    }
}

impl Sink for Comparison {
    fn collective(&mut self, step: u64, group: &Group, _: u32, ranks: &[Arrival]) {
        let kept: Vec<_> = ranks.iter().filter(|(rank, ..)| !self.lost[*rank as usize]).copied().collect();
        self.add_clocks(CollectiveFlow::All, &kept);
        let times: Vec<_> = kept.iter().map(|&(rank, _, time)| (rank, Duration::from_nanos(time))).collect();
        self.ranks.add_collective(step, &group.name, &times);
        // A group with a lost rank is not compared.
        if kept.len() == ranks.len() {
            self.links.add(step, &group.name, CollectiveOperation::AllReduce, group.bytes, &times);
        }
        let shortest = kept.iter().map(|(.., time)| *time).min().unwrap_or(0);
        kept.iter().for_each(|&(rank, _, time)| self.waits[rank as usize] += time - shortest);
    }

    fn exchange(&mut self, step: u64, _: u32, ranks: [Arrival; 2]) {
        let kept: Vec<_> = ranks.into_iter().filter(|(rank, ..)| !self.lost[*rank as usize]).collect();
        self.add_clocks(CollectiveFlow::From(ranks[0].0), &kept);
        kept.iter().for_each(|&(rank, _, time)| self.ranks.add_exchange(step, rank, Duration::from_nanos(time)));
    }

    fn step(&mut self, step: u64, rank: u32, start: u64, end: u64, spans: &[[u64; 2]; PATHS.len()]) {
        self.end = self.end.max(end);
        if self.lost[rank as usize] {
            return;
        }
        let duration = Duration::from_nanos(end - start);
        self.ranks.add_step(rank, step, duration);
        let gpu = PATHS.iter().zip(spans).map(|(path, [_, gpu])| (*path, Duration::from_nanos(*gpu)));
        let waits = std::mem::take(&mut self.waits[rank as usize]);
        self.balance.add(rank, step, duration, gpu, Duration::from_nanos(waits));
        let sums = &mut self.spans[rank as usize];
        for (sums, times) in sums.iter_mut().zip(spans) {
            *sums = [sums[0] + times[0], sums[1] + times[1]];
        }
    }
}

/// The result of a comparison.
struct Compared {
    waits: RankWaits,
    links: Vec<SlowLink>,
    uneven: Option<UnevenWork>,
    /// The number of clocks whose true offset is in its interval, of those with an interval, and of all.
    clocks: [usize; 3],
}

fn compared(mesh: &Mesh) -> Compared {
    let mut random = Random(mesh.seed ^ 1);
    let is_culprit = |rank: usize| {
        mesh.fault.is_some_and(|(fault, culprit, _)| match fault {
            Fault::Link => mesh.tensor_group(culprit).contains(&rank),
            _ => culprit == rank,
        })
    };
    let ranks = mesh.ranks();
    let lost: Vec<_> = (0..ranks).map(|rank| random.below(100) == 0 && !is_culprit(rank)).collect();
    let hosts: Vec<_> = (0..ranks).map(|rank| format!("node-{}", rank / Clocks::RANKS_PER_NODE)).collect();
    let kept = || (0..ranks).filter(|&rank| !lost[rank]);
    let mut sink = Comparison {
        ranks: RankComparison::default(),
        links: LinkComparison::default(),
        balance: WorkBalance::default(),
        offsets: ClockOffsets::new(kept().map(|rank| (rank as u32, hosts[rank].as_str()))),
        clocks: Clocks::new(ranks, &mut random),
        random,
        lost: lost.clone(),
        waits: vec![0; ranks],
        spans: vec![Default::default(); ranks],
        end: 0,
    };
    kept().for_each(|rank| sink.ranks.add_rank(rank as u32, ranks as u32, ""));
    mesh.simulate(&mut sink);
    sink.ranks.late();
    for (index, path) in PATHS.iter().enumerate() {
        let times: Vec<_> =
            kept().map(|rank| (rank as u32, sink.spans[rank][index].map(Duration::from_nanos))).collect();
        sink.ranks.add_place(&schema::split_path(path), None, &times);
    }
    let waits = sink.ranks.finish();
    let step = waits.ranks().iter().map(|rank| rank.step).max().unwrap_or_default();
    let middle = sink.end / 2;
    let first = sink.clocks.0.len().min(Clocks::node(kept().next().unwrap_or(0) as u32));
    let at =
        Timestamp::from_unix_nanos(sink.clocks.read((first * Clocks::RANKS_PER_NODE) as u32, middle).unsigned_abs());
    let mut clocks = [0; 3];
    for offset in sink.offsets.offsets(at) {
        let node = offset.ranks.first().map_or(first, |rank| Clocks::node(*rank));
        let ahead = sink.clocks.ahead(node, middle) - sink.clocks.ahead(first, middle);
        clocks[2] += 1;
        if let Some((least, most)) = offset.interval {
            clocks[1] += 1;
            clocks[0] += usize::from((least..=most).contains(&ahead));
        }
    }
    Compared {
        links: sink.links.slow(step, |rank| hosts[rank as usize].as_str()),
        uneven: sink.balance.uneven().filter(|_| waits.late().is_empty()),
        waits,
        clocks,
    }
}

/// Returns whether a fault was found: its rank and no other, its span, and host or GPU. For a slow link, its group, and
/// no span of any rank; for sequences of different lengths, no rank at all.
fn is_right(mesh: &Mesh, compared: &Compared) -> bool {
    let Compared { waits, links, uneven, .. } = compared;
    let named: Vec<_> = waits.late().iter().map(|late| late.rank as usize).collect();
    match mesh.fault {
        None => named.is_empty() && links.is_empty() && uneven.is_none(),
        Some((Fault::Link, culprit, _)) => {
            let group = mesh.tensor_group(culprit);
            matches!(&links[..], [link] if link.ranks.iter().map(|rank| *rank as usize).eq(group.clone()))
                && named.iter().all(|rank| group.contains(rank))
                && waits.late().iter().all(|late| late.cause.is_none())
                && uneven.is_none()
        }
        Some((Fault::Sequences, ..)) => {
            let is_found = uneven.as_ref().is_some_and(|it| it.changes && it.correlation > Some(0.9));
            is_found && named.is_empty() && links.is_empty()
        }
        Some((fault, culprit, _)) => {
            let cause = waits.late().first().and_then(|late| late.cause.as_ref());
            let is_cause = cause.zip(fault.span()).is_some_and(|(cause, (path, on_gpu))| {
                cause.path == schema::split_path(path) && cause.on_gpu == on_gpu
            });
            named == [culprit] && is_cause && links.is_empty() && uneven.is_none()
        }
    }
}

fn judge(ranks: usize, first: u64, last: u64) {
    let mut right: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut clocks = [0; 3];
    for seed in first..=last {
        for with_fault in [true, false] {
            let mesh = mesh(ranks, seed, with_fault);
            let compared = compared(&mesh);
            (0..3).for_each(|index| clocks[index] += compared.clocks[index]);
            let name = mesh.fault.map_or("none".to_owned(), |(fault, ..)| format!("{fault:?}"));
            let count = right.entry(name).or_default();
            count.1 += 1;
            if is_right(&mesh, &compared) {
                count.0 += 1;
            } else {
                println!("seed {seed}: {mesh:?}");
                compared.waits.late().iter().take(3).for_each(|late| println!("  {late}"));
                compared.links.iter().take(3).for_each(|link| println!("  {link}"));
                compared.uneven.iter().for_each(|uneven| println!("  {uneven}"));
            }
        }
    }
    println!("{ranks} ranks, seeds {first} to {last}");
    for (fault, (right, all)) in right {
        println!("{fault:12} {right:4} of {all}");
    }
    let [right, bounded, all] = clocks;
    println!("of {all} clocks, {bounded} have an interval, and the true offset is in {right} of them");
}

/// Adds rows to tables, with the clock of each node, and writes them when there are many.
struct Writer<'a> {
    folder: &'a Path,
    /// The tables of some nodes each.
    tables: Vec<Tables>,
    clocks: Clocks,
    lost: Vec<bool>,
    problem: Option<kernspan_parquet::TableError>,
}

impl Writer<'_> {
    const RANKS_PER_FILE: usize = 80;
    /// The steps between two writes, so that rows of all ranks fit into memory.
    const STEPS_PER_FILE: u64 = 5;

    fn row(&mut self, step: u64, group: &str, number: u32, is_pairwise: bool, (rank, start, time): Arrival) {
        if self.lost[rank as usize] {
            return;
        }
        let operation = if is_pairwise { "sendrecv" } else { "allreduce" };
        let (from, to) = (self.clocks.read(rank, start), self.clocks.read(rank, start + time));
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

    fn exchange(&mut self, step: u64, number: u32, ranks: [Arrival; 2]) {
        ranks.into_iter().for_each(|rank| self.row(step, "pipeline", number, true, rank));
    }

    fn step(&mut self, step: u64, rank: u32, start: u64, end: u64, spans: &[[u64; 2]; PATHS.len()]) {
        if self.lost[rank as usize] {
            return;
        }
        let (from, to) = (self.clocks.read(rank, start), self.clocks.read(rank, end));
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
    let clocks = Clocks::new(mesh.ranks(), &mut random);
    let lost: Vec<_> = (0..mesh.ranks()).map(|rank| random.below(1000) == 0 && rank != culprit).collect();
    let tables = (0..mesh.ranks().div_ceil(Writer::RANKS_PER_FILE)).map(|_| Tables::new("fleet")).collect();
    let mut writer = Writer { folder, tables, clocks, lost, problem: None };
    for rank in (0..mesh.ranks()).filter(|&rank| !writer.lost[rank]) {
        let node = format!("node-{}", rank / Clocks::RANKS_PER_NODE);
        let start = writer.clocks.read(rank as u32, 0);
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
