//! Traces of many ranks, made of recorded ones: each file is that of a recorded rank, on the clock of its node, with a
//! planted fault or none. Some files are lost, and one is truncated.

use crate::{clocks::Clocks, mesh::Random};
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use kernspan::{
    analysis::{Analysis, ClockOffsets, RankProfile, RankWaits, collective_calls},
    trace::Timestamp,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    error::Error,
    fs::{self, File},
    io::{Read, Write},
    path::Path,
};

/// The span that the late rank has, and no other.
const PLANTED: &str = "planted";
/// The timestamps of NCCL's kernels are off by up to so many nanoseconds, either way.
const JITTER: u64 = 2000;

/// A recording of a few ranks.
struct Seeds {
    ranks: Vec<Value>,
    /// When the first collective of each step begins on the first rank to arrive, in microseconds.
    points: Vec<f64>,
}

/// The planted fault, and the files that were lost or cut off.
struct Planted {
    /// The rank, and by how many microseconds it is late in each step.
    fault: Option<(usize, f64)>,
    lost: Vec<bool>,
    clocks: Clocks,
}

fn events(trace: &mut Value) -> impl Iterator<Item = &mut Value> {
    trace["traceEvents"].as_array_mut().into_iter().flatten()
}

fn is_collective(event: &Value) -> bool {
    event["cat"] == "kernel" && event["name"].as_str().is_some_and(|name| name.starts_with("nccl"))
}

fn number(event: &Value, key: &str) -> f64 {
    event[key].as_f64().unwrap_or(0.0)
}

impl Seeds {
    fn read(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut paths: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let mut ranks = Vec::new();
        for path in paths {
            let mut text = String::new();
            MultiGzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
            ranks.push(serde_json::from_str(&text)?);
        }
        let mut firsts: BTreeMap<usize, f64> = BTreeMap::new();
        for rank in &mut ranks {
            let of_rank: Vec<Value> = events(rank).map(Value::take).collect();
            let is_step = |event: &&Value| event["ph"] == "X" && event["cat"] != "gpu_user_annotation";
            let steps = of_rank
                .iter()
                .filter(is_step)
                .filter(|event| event["name"].as_str().is_some_and(|name| name.starts_with("ProfilerStep")));
            let mut starts: Vec<_> = steps.map(|event| number(event, "ts")).collect();
            starts.sort_by(f64::total_cmp);
            for event in of_rank.iter().filter(|event| is_collective(event)) {
                let begin = number(event, "ts");
                let step = starts.partition_point(|start| *start <= begin);
                let first = firsts.entry(step).or_insert(begin);
                *first = first.min(begin);
            }
            rank["traceEvents"] = of_rank.into();
        }
        Ok(Self { ranks, points: firsts.into_values().map(|begin| begin - 1.0).collect() })
    }

    /// Writes the files of a run.
    fn write(&self, folder: &Path, planted: &Planted, random: &mut Random) -> Result<(), Box<dyn Error>> {
        let ranks = planted.lost.len();
        let group = format!("{:?}", (0..ranks).collect::<Vec<_>>());
        let truncated = (0..ranks).find(|&rank| !planted.lost[rank] && planted.fault.is_none_or(|it| it.0 != rank));
        for rank in (0..ranks).filter(|&rank| !planted.lost[rank]) {
            let mut trace = self.ranks[rank % self.ranks.len()].clone();
            self.plant(&mut trace, rank, planted.fault);
            let start = self.points.first().copied().unwrap_or_default();
            let (offset, drift) = planted.clocks.0[rank / Clocks::RANKS_PER_NODE];
            for event in events(&mut trace) {
                let is_collective = is_collective(event);
                let jitter = random.below(2 * JITTER + 1) as f64 - JITTER as f64;
                let jitter = if is_collective { jitter / 1e3 } else { 0.0 };
                let (ts, drift) = (number(event, "ts"), drift as f64 / 1e9);
                event["ts"] = (ts + jitter + offset as f64 / 1e3 + (ts - start) * drift).into();
                if event["dur"].is_number() {
                    event["dur"] = (number(event, "dur") * (1.0 + drift)).into();
                }
                if is_collective {
                    event["args"]["Group size"] = ranks.into();
                    event["args"]["Process Group Ranks"] = group.as_str().into();
                }
            }
            trace["distributedInfo"]["rank"] = rank.into();
            trace["distributedInfo"]["world_size"] = ranks.into();
            let path = folder.join(format!("rank{rank:05}.json.gz"));
            let mut bytes = GzEncoder::new(Vec::new(), Compression::fast());
            bytes.write_all(trace.to_string().as_bytes())?;
            let bytes = bytes.finish()?;
            let end = if truncated == Some(rank) { bytes.len() / 2 } else { bytes.len() };
            fs::write(path, &bytes[..end])?;
        }
        Ok(())
    }

    /// Has a rank do something else before its first collective of each step, and the others wait for it there.
    fn plant(&self, trace: &mut Value, rank: usize, fault: Option<(usize, f64)>) {
        let Some((culprit, late)) = fault else { return };
        let mut new = Vec::new();
        let mut seen = vec![false; self.points.len() + 1];
        for event in events(trace) {
            let (ts, dur) = (number(event, "ts"), number(event, "dur"));
            let before = self.points.partition_point(|point| *point <= ts);
            let within = self.points.partition_point(|point| *point < ts + dur) - before;
            let is_first = is_collective(event) && !std::mem::replace(&mut seen[before], true);
            let is_host = event["ph"] == "X" && !matches!(event["cat"].as_str(), Some("kernel" | "gpu_memcpy"));
            let waits = is_first && rank != culprit && before > 0;
            event["ts"] = (ts + late * (before - usize::from(waits)) as f64).into();
            if waits {
                event["dur"] = (dur + late).into();
            } else if is_host && within > 0 {
                event["dur"] = (dur + late * within as f64).into();
            }
            let is_step = event["name"].as_str().is_some_and(|name| name.starts_with("ProfilerStep"));
            if is_step && is_host && event["cat"] == "user_annotation" && rank == culprit {
                for index in before..before + within {
                    let ts = self.points[index] + late * index as f64;
                    new.push(json!({"ph": "X", "cat": "cpu_op", "name": PLANTED, "pid": event["pid"],
                        "tid": event["tid"], "ts": ts, "dur": late, "args": {}}));
                }
            }
        }
        trace["traceEvents"].as_array_mut().into_iter().for_each(|events| events.append(&mut new));
    }
}

/// Writes runs with and without a fault, reads them, and counts how often the late rank is named, and in how many
/// intervals the true offset of a clock is.
pub(crate) fn judge(seeds: &Path, folder: &Path, ranks: usize, first: u64, last: u64) -> Result<(), Box<dyn Error>> {
    let recorded = Seeds::read(seeds)?;
    let (mut right, mut runs, mut clocks) = (0, 0, [0; 3]);
    for seed in first..=last {
        for with_fault in [true, false] {
            let mut random = Random(seed.wrapping_mul(2) + u64::from(with_fault));
            // 10 to 30 % of a step of 33 ms.
            let fault =
                with_fault.then(|| (random.below(ranks as u64) as usize, 33_000.0 * (0.1 + 0.2 * random.part())));
            let is_culprit = |rank: usize| fault.is_some_and(|(culprit, _)| culprit == rank);
            let lost = (0..ranks).map(|rank| random.below(100) == 0 && !is_culprit(rank)).collect();
            let planted = Planted { fault, lost, clocks: Clocks::new(ranks, &mut random) };
            fs::create_dir_all(folder)?;
            for entry in fs::read_dir(folder)?.flatten() {
                fs::remove_file(entry.path())?;
            }
            recorded.write(folder, &planted, &mut random)?;
            let (waits, of_run) = read(folder, &planted)?;
            (0..3).for_each(|index| clocks[index] += of_run[index]);
            let named: Vec<_> = waits.late().iter().map(|late| late.rank as usize).collect();
            let span = waits.late().first().and_then(|late| late.cause.as_ref()?.path.last().cloned());
            let is_right = match fault {
                None => named.is_empty(),
                Some((culprit, _)) => named == [culprit] && span.as_deref() == Some(PLANTED),
            };
            runs += 1;
            right += u32::from(is_right);
            if !is_right {
                println!("seed {seed}, {fault:?}");
                waits.late().iter().take(3).for_each(|late| println!("  {late}"));
            }
        }
    }
    println!("{ranks} ranks in files, seeds {first} to {last}: {right} of {runs} right");
    let [inside, bounded, all] = clocks;
    println!("of {all} clocks, {bounded} have an interval, and the true offset is in {inside} of them");
    Ok(())
}

/// Reads the files, of which one is truncated, and compares the ranks and their clocks.
fn read(folder: &Path, planted: &Planted) -> Result<(RankWaits, [usize; 3]), Box<dyn Error>> {
    let mut paths: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let (mut profiles, mut calls, mut unread) = (Vec::new(), Vec::new(), 0);
    for path in paths {
        let Ok(traces) = kernspan::read(&path) else {
            unread += 1;
            continue;
        };
        for trace in traces {
            let mut profile = RankProfile::default();
            profile.add(&Analysis::of(&trace));
            profiles.push(profile);
            calls.push((trace.metadata().rank, collective_calls(&trace)));
        }
    }
    if unread != 1 {
        return Err(format!("{unread} files could not be read, not 1").into());
    }
    let offsets = ClockOffsets::of(calls.iter().map(|(rank, calls)| (*rank, "", calls.as_slice())));
    let Some((reference, first)) = calls.first().and_then(|(rank, calls)| Some((*rank, calls.get(calls.len() / 2)?)))
    else {
        return Err("there are no collectives".into());
    };
    let at: Timestamp = first.start;
    let begun = calls[0].1.first().map_or(at, |call| call.start);
    let since = at.since(begun).as_nanos() as u64;
    let mut counts = [0; 3];
    for offset in offsets.offsets(at) {
        let node = |rank: u32| planted.clocks.ahead(Clocks::node(rank), since);
        let ahead = node(offset.ranks[0]) - node(reference);
        counts[2] += 1;
        if let Some((least, most)) = offset.interval {
            counts[1] += 1;
            counts[0] += usize::from((least..=most).contains(&ahead));
        }
    }
    Ok((RankWaits::of(&profiles), counts))
}
