//! GPU time of requests, with a fake driver whose kernels take twenty microseconds each.

use crate::fake::{self, Fake};
use kernspan::{Html, Profiler, serving::RequestsOfKind};
use std::{fs, time::Duration};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// This is not a test but the program that the other one runs, in a process of its own.
#[test]
fn programs() {
    let Some((fake, program)) = Fake::program() else { return };
    assert_eq!(program, "batch");
    batch(fake);
}

#[test]
fn a_batch_is_split_among_its_requests_in_the_report_and_on_the_page() {
    fake::run("requests::programs", "batch");
}

fn batch(fake: Fake) {
    let folder = tempfile::tempdir().unwrap();
    let builder = Profiler::builder().request_on("request").export(Html::to_dir(folder.path()));
    let (layer, profiler) = builder.build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let requests = [1, 0].map(|own| {
        let request = info_span!("request");
        request.in_scope(|| (0..own).for_each(|_| fake.launch()));
        request
    });
    let batch = info_span!("batch");
    requests.iter().for_each(|request| _ = batch.follows_from(request));
    batch.in_scope(|| (0..4).for_each(|_| fake.launch()));
    drop(requests);
    let report = profiler.finish().unwrap();

    let kernel = Duration::from_micros(20);
    let RequestsOfKind { gpu, .. } = report.requests().kind("request").unwrap();
    assert_eq!((gpu.time.count(), gpu.time.sum()), (2, 5 * kernel));
    assert_eq!((gpu.alone, gpu.shared, gpu.shared_percent()), (kernel, 4 * kernel, Some(80.0)));
    // Lines are as long as the terminal is wide.
    let text = report.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    let note = text.split_once("GPU time of 2 recorded requests").unwrap().1;
    assert!(note.contains("80.0 % of it split evenly among the requests of batches"), "{note}");
    let page = report.files().iter().find(|file| file.extension().is_some_and(|ending| ending == "html")).unwrap();
    let page = fs::read_to_string(page).unwrap();
    assert!(["GPU Mean", "GPU Shared"].iter().all(|column| page.contains(column)));
}
