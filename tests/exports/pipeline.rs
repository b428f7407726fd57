//! The what-if analysis of pipelines, held against the published results of its authors.

use kernspan::analysis::{PipelineCulprit, PipelineKind as Kind, PipelineOperation, PipelineWhatIf};
use std::{fs::File, io::Read, path::Path, time::Duration};

/// The results of the authors' own program: for ST as published, for the others from the steps in the fixture.
struct Published {
    slowdown: f64,
    workers_share: f64,
    last_stage_share: f64,
}

const AR: Published = Published { slowdown: 1.9793, workers_share: 0.9961, last_stage_share: -0.0013 };
const ST: Published = Published { slowdown: 1.1787, workers_share: 0.0314, last_stage_share: 1.2194 };
const SE: Published = Published { slowdown: 1.5100, workers_share: 0.0709, last_stage_share: 0.6858 };

/// Reads a fixture: see its `NOTICE`.
fn operations(name: &str) -> Vec<PipelineOperation> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/straggler/{name}.csv.gz"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    let kind = |name: &str| match name {
        "F" => Kind::Forward,
        "B" => Kind::Backward,
        "fs" => Kind::ForwardSend,
        "fr" => Kind::ForwardReceive,
        "bs" => Kind::BackwardSend,
        "br" => Kind::BackwardReceive,
        "gather" => Kind::ParameterGather,
        "reduce" => Kind::GradientReduce,
        "shared" => Kind::SharedReduce,
        "local" => Kind::LocalReduce,
        "sync" => Kind::Synchronize,
        "opt" => Kind::Optimizer,
        _ => panic!("unknown kind {name}"),
    };
    let line = |line: &str| -> Vec<PipelineOperation> {
        let fields: Vec<_> = line.split(',').collect();
        let [step, worker, replica, stage] = [0, 1, 2, 3].map(|field: usize| fields[field].parse::<u32>().unwrap());
        let operation = |(number, times): (usize, &str)| {
            let (start, duration) = times.split_once(':').unwrap();
            let [start, duration] = [start, duration].map(|micros| Duration::from_micros(micros.parse().unwrap()));
            let (step, kind, number) = (step.into(), kind(fields[4]), number as u32);
            PipelineOperation { worker, stage, replica, step, kind, number, start, duration }
        };
        fields[5].split(' ').enumerate().map(operation).collect()
    };
    text.lines().skip(2).flat_map(line).collect()
}

/// Asserts that a number is within 5 % of the published one.
fn assert_near(number: f64, published: f64) {
    assert!((number / published - 1.0).abs() < 0.05, "{number} instead of {published}");
}

#[test]
fn the_slow_worker_is_found() {
    let what_if = PipelineWhatIf::of(&operations("AR")).unwrap();
    assert_near(what_if.slowdown(), AR.slowdown);
    assert_near(what_if.workers_share, AR.workers_share);
    assert!((what_if.last_stage_share - AR.last_stage_share).abs() < 0.05, "{what_if}");
    assert_eq!(what_if.culprit, PipelineCulprit::Workers(vec![0]), "{:?}", &what_if.workers[..4]);
}

#[test]
fn the_long_last_stage_is_found() {
    let what_if = PipelineWhatIf::of(&operations("ST")).unwrap();
    assert_near(what_if.slowdown(), ST.slowdown);
    assert_near(what_if.last_stage_share, ST.last_stage_share);
    assert!((what_if.workers_share - ST.workers_share).abs() < 0.05, "{what_if:?}");
    assert_eq!(what_if.culprit, PipelineCulprit::LastStage);
}

#[test]
fn sequences_of_different_lengths_are_no_fault_of_a_worker() {
    let what_if = PipelineWhatIf::of(&operations("SE")).unwrap();
    assert_near(what_if.slowdown(), SE.slowdown);
    assert!((what_if.workers_share - SE.workers_share).abs() < 0.05, "{what_if:?}");
    assert_near(what_if.last_stage_share, SE.last_stage_share);
    assert_eq!(what_if.culprit, PipelineCulprit::MicroBatches);
}
