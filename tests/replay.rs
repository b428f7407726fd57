//! Look.
#[test]
fn look() {
    for name in ["training", "calls"] {
        let trace = kernspan::replay(
            std::fs::File::open(format!("{}/tests/fixtures/gpu/{name}.kernspan", env!("CARGO_MANIFEST_DIR"))).unwrap(),
        )
        .unwrap();
        println!(
            "{} {} calls {} work {:?} {:?} waits {} alloc {} over {:?}",
            trace.gpu(),
            trace.spans().len(),
            trace.api_calls().len(),
            trace.attributions(),
            trace.losses(),
            trace.waits().len(),
            trace.allocations().len(),
            trace.overheads()
        );
        for w in trace.work() {
            if w.graph().is_some() || w.duration().as_micros() > 50 {
                println!(
                    "{:>12} {:?} corr {} {} {} call {:?}..{:?} {:?}",
                    w.name().to_string(),
                    w.graph(),
                    w.correlation(),
                    w.start().since(trace.start()).as_nanos(),
                    w.duration().as_nanos(),
                    w.call().map(|c| c.start().since(trace.start()).as_nanos()),
                    w.call().map(|c| c.duration().as_nanos()),
                    w.stream()
                );
            }
        }
        for w in trace.waits().take(6) {
            println!(
                "{:?} {:?} {:?} {:?}",
                w.kind(),
                w.span().map(|s| s.name().to_owned()),
                w.call().map(|c| c.name().to_owned()),
                w.duration()
            );
        }
        let mut names = std::collections::BTreeMap::new();
        for c in trace.api_calls() {
            *names.entry((format!("{:?}", c.api()), c.name().to_owned())).or_insert(0) += 1;
        }
        println!("{names:?}");
    }
}
