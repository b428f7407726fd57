//! Tests in which real engines run the queries: all return the same integers, and those that `compare_ranks` returns.
//!
//! The engines are Python packages, in an environment that the tests make: see `tests/support/downloads.rs`. Without
//! Python the tests print a message and pass, unless `CI=true`.

#[path = "../../../../tests/support/downloads.rs"]
#[allow(unreachable_pub, reason = "tests of the library use it, too")]
mod downloads;

use kernspan::{
    Trace,
    analysis::{Analysis, RankWaits},
};
use kernspan_parquet::{
    TableFolder, Tables, compare_ranks,
    schema::{self, join_path},
    sql::{Engine, QUERIES},
};
use serde_json::{Value as Json, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The rows of each query, by its name.
type Answers = BTreeMap<&'static str, Vec<Vec<Json>>>;

/// Returns the Python of an environment with the packages of a file.
fn python(requirements: &str) -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines").join(requirements);
    let version = Command::new("python3").arg("--version").output().ok();
    let environment = version.and_then(|version| {
        let name = String::from_utf8_lossy(&version.stdout).trim().replace(' ', "-");
        let wanted = fs::read(&file).unwrap();
        downloads::folder(&format!("engines-{name}"), &wanted, |folder| {
            let made = Command::new("python3").args(["-m", "venv"]).arg(folder).output().ok()?;
            made.status.success().then_some(())?;
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
            let output = Command::new(folder.join("bin/python")).args(pip).arg(&file).output().unwrap();
            assert!(output.status.success(), "pip: {}", String::from_utf8_lossy(&output.stderr));
            Some(())
        })
    });
    if environment.is_none() {
        let message = "no python3 with venv: SQL engines do NOT check the tables";
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{message}");
        eprintln!("\n*** {message} ***\n");
    }
    Some(environment?.join("bin/python"))
}

/// Runs queries with an engine, by its name in `engines.py`.
fn rows_of(python: &Path, name: &str, engine: Engine, folder: &Path) -> Vec<Vec<Vec<Json>>> {
    let queries: Vec<_> = QUERIES.iter().map(|(_, sql)| sql).collect();
    let work = json!({"statements": engine.statements(folder), "queries": queries, "folder": folder});
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), work.to_string()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines/engines.py");
    let output = Command::new(python).arg(script).arg(name).arg(file.path()).output().unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {printed}{errors}");
    printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn answers(python: &Path, name: &str, engine: Engine, folder: &Path) -> Answers {
    let rows = rows_of(python, name, engine, folder);
    assert_eq!(rows.len(), QUERIES.len(), "{name}");
    QUERIES.iter().map(|(query, _)| *query).zip(rows).collect()
}

fn fixture(name: &str) -> Vec<Trace> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ranks").join(name);
    (0..4).flat_map(|rank| kernspan::read(folder.join(format!("rank{rank}.json.gz"))).unwrap()).collect()
}

/// Writes two recorded runs, one with a late rank, and a generated one: a mesh of 2 × 2 × 3 ranks.
fn tables() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for run in ["late", "even"] {
        let mut tables = Tables::new(run);
        fixture(run).iter().for_each(|trace| tables.add(&Analysis::of(trace)));
        tables.write(folder.path()).unwrap();
    }
    let mut tables = Tables::new("mesh");
    mesh(&mut tables);
    tables.write(folder.path()).unwrap();
    folder
}

/// Adds ranks of a mesh, the seventh of which is late; some collectives are missing, and many are equally long.
fn mesh(tables: &mut Tables) {
    // Numbers of a linear congruential generator.
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for rank in 0..12_u32 {
        let (tensor, data, stage) = (rank % 2, rank / 2 % 2, rank / 4);
        tables.rows(&schema::RANKS).push(&[
            rank.into(),
            1.into(),
            1.into(),
            0.into(),
            12.into(),
            "node".into(),
            1.into(),
            "".into(),
            4.into(),
            0.into(),
        ]);
        for step in 0..5_u64 {
            let whole = step > 0;
            let cells = [rank.into(), step.into(), step.into(), 100_000.into(), true.into(), whole.into(), 0.into()];
            tables.rows(&schema::STEPS).push(&cells);
            for (path, time) in [("step;forward", 900), ("step;loader", if rank == 7 { 30_000 } else { 100 })] {
                let own = time + random(50);
                tables.rows(&schema::SPANS).push(&[
                    rank.into(),
                    step.into(),
                    path.into(),
                    "".into(),
                    "".into(),
                    1.into(),
                    (own + random(50)).into(),
                    own.into(),
                    own.into(),
                    random(1000).into(),
                    0.into(),
                    0.into(),
                ]);
            }
            let groups = [
                (format!("tensor {stage} {data}"), "allreduce", rank == 6, 3),
                (format!("data {stage} {tensor}"), "allreduce", rank == 5, 2),
                ("pipeline".to_owned(), "send", false, 2),
            ];
            for (group, operation, waits, count) in groups {
                for number in 0..count {
                    if number == 0 && random(40) == 0 {
                        continue;
                    }
                    let time = if waits { 20_000 } else { 500 } + random(4) * 100;
                    tables.rows(&schema::COLLECTIVES).push(&[
                        rank.into(),
                        step.into(),
                        (step * 100 + number).into(),
                        time.into(),
                        (*group).into(),
                        number.into(),
                        operation.into(),
                        (operation == "send").into(),
                        "".into(),
                        64.into(),
                        2.into(),
                        random(500).into(),
                        "step;forward".into(),
                    ]);
                }
            }
        }
    }
}

fn int(value: &Json) -> u128 {
    u128::from(value.as_u64().unwrap_or_else(|| panic!("{value} is not a number")))
}

/// Checks the answers for a run against what `compare_ranks` returns.
fn check(run: &str, answers: &Answers, waits: &RankWaits) {
    let of_run = |query: &str| answers[query].iter().filter(|row| row[0] == run).collect::<Vec<_>>();
    let rows = of_run("rank_waits");
    assert_eq!(rows.len(), waits.ranks().len());
    for (row, rank) in rows.iter().zip(waits.ranks()) {
        let mean = |index: usize| int(&row[index]) / int(&row[2]);
        assert_eq!((int(&row[1]), int(&row[2])), (rank.rank.into(), rank.steps.into()), "{run}");
        let [step, waits, waited] = [rank.step, rank.waits, rank.waited_for].map(|time| time.as_nanos());
        assert_eq!([mean(3), mean(5), mean(6)], [step, waits, waited], "{run} {row:?}");
        assert_eq!((int(&row[4]), int(&row[7])), (rank.collectives.into(), rank.last.into()), "{run} {row:?}");
    }
    let rows = of_run("late_ranks");
    assert_eq!(rows.len(), waits.late().len(), "{run}");
    for (row, late) in rows.iter().zip(waits.late()) {
        let mean = |index: usize| int(&row[index]) / int(&row[2]);
        let expected = (late.rank.into(), late.least.as_nanos(), late.waited_for.as_nanos());
        assert_eq!((int(&row[1]), mean(4), mean(5)), expected, "{run}");
        let spans = of_run("late_spans");
        let Some(cause) = &late.cause else { continue };
        let span = spans.iter().find(|span| int(&span[1]) == u128::from(late.rank) && int(&span[2]) == 1).unwrap();
        let times = [5, 6].map(|index: usize| int(&span[index]) / int(&row[2]));
        assert_eq!(span[3], join_path(cause.path.iter().map(String::as_str)), "{run}");
        assert_eq!(int(&span[4]), u128::from(cause.on_gpu), "{run}");
        assert_eq!(times, [cause.time, cause.others].map(|time| time.as_nanos()), "{run}");
    }
    let missing: BTreeSet<_> = of_run("missing_collectives").iter().map(|row| format!("{:?}", &row[1..4])).collect();
    let warning = waits.warnings().iter().find(|warning| warning.contains("not on all ranks of the group"));
    let count = warning.map_or(0, |warning| warning.split(' ').next().unwrap().parse().unwrap());
    assert_eq!(missing.len(), count, "{run}: {warning:?}");
}

fn check_all(folder: &Path, answers: &Answers) {
    for run in TableFolder::open(folder).unwrap().runs() {
        check(run, answers, &compare_ranks(folder, Some(run)).unwrap().waits);
    }
    // It was not in vain.
    let late: Vec<_> = answers["late_ranks"].iter().map(|row| (row[0].as_str().unwrap(), int(&row[1]))).collect();
    assert_eq!(late, [("late", 2), ("mesh", 7)]);
    assert!(!answers["missing_collectives"].is_empty() && answers["slowest_kernels"].len() > 20);
}

#[test]
fn engines_return_the_same_integers_as_rust() {
    let Some(python) = python("requirements.txt") else { return };
    let folder = tables();
    let engines = [("duckdb", Engine::DuckDb), ("datafusion", Engine::DataFusion), ("chdb", Engine::ClickHouse)];
    let all: Vec<_> = engines.map(|(name, engine)| answers(&python, name, engine, folder.path())).into();
    for (name, answers) in engines.iter().map(|(name, _)| name).zip(&all) {
        for (query, rows) in answers {
            assert_eq!(rows, &all[0][query], "{name}: {query}");
        }
    }
    check_all(folder.path(), &all[0]);
    // A data frame of polars has the same rows.
    let frames = rows_of(&python, "polars", Engine::DuckDb, folder.path());
    let total = |index: usize| all[0]["step_times"].iter().map(|row| int(&row[index])).sum::<u128>();
    assert_eq!([int(&frames[0][0][0]), int(&frames[0][0][1])], [total(2), total(4)]);
    let sum = |index: usize| all[0]["exposed_communication"].iter().map(|row| int(&row[index])).sum::<u128>();
    assert_eq!([int(&frames[1][0][0]), int(&frames[1][0][1])], [sum(3), sum(5)]);
}

#[test]
#[ignore = "needs Java: `.ci/run spark`"]
fn spark_returns_the_same_integers_as_rust() {
    let Some(python) = python("spark.txt") else { return };
    let folder = tables();
    check_all(folder.path(), &answers(&python, "spark", Engine::Spark, folder.path()));
}
