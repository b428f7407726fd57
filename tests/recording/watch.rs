//! Watchers: who else is told of spans and windows, and when.

use kernspan::{
    Profiler, Schedule,
    framework::{Origin, Watcher},
};
use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// Writes down what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<&'static str>>);

impl Told {
    fn say(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Watcher for Told {
    fn arrived(&self, _: Origin) {
        self.say("arrived");
    }

    fn changed(&self, _: Origin) {
        self.say("changed");
    }

    fn settle(&self) {
        // What it does to settle may have spans, and even be a step.
        info_span!("settling").in_scope(|| self.say("settle"));
    }

    fn opened(&self, _: Origin) {
        self.say("opened");
    }

    fn closed(&self) {
        self.say("closed");
    }
}

#[test]
fn who_watches_is_told_of_windows_and_of_the_spans_in_them() {
    let schedule = Schedule::new().wait(1).active(1).repeat(2);
    let (layer, profiler) = Profiler::builder().schedule(schedule).step_on("settling").build().unwrap();
    let told = Arc::new(Told::default());
    let watch = profiler.hand_over().watch(Arc::clone(&told) as _);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("waiting").in_scope(|| ());
        info_span!("waiting").in_scope(|| ());
        assert_eq!(told.take(), ["arrived"]);
        profiler.step();
        assert_eq!(told.take(), ["settle", "opened"]);
        info_span!("outer").in_scope(|| info_span!("inner").in_scope(|| ()));
        assert_eq!(told.take(), ["changed"; 4]);
        profiler.step();
        // The window is still open while it settles.
        assert_eq!(told.take(), ["changed", "settle", "changed", "closed"]);
        profiler.step();
        assert_eq!(told.take(), ["settle", "opened"]);
        drop(watch);
        info_span!("unwatched").in_scope(|| ());
        profiler.step();
    });
    profiler.finish().unwrap();
    assert!(told.take().is_empty());
}

#[test]
fn what_is_done_at_an_edge_is_no_step() {
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).step_on("settling").build().unwrap();
    let told = Arc::new(Told::default());
    let _watch = profiler.hand_over().watch(Arc::clone(&told) as _);
    let report = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        assert!(profiler.start() && profiler.stop() && profiler.start());
        profiler.finish().unwrap()
    });
    assert_eq!(report.windows(), 2);
    let edges: Vec<_> = told.take().into_iter().filter(|what| !["arrived", "changed"].contains(what)).collect();
    assert_eq!(edges, ["settle", "opened", "settle", "closed", "settle", "opened", "settle", "closed"]);
}

/// As when a framework's queue is full, and what would empty it enters a span, while somebody comes or goes.
#[test]
fn a_watcher_that_takes_its_time_stops_nobody_else() {
    struct Slow(Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>, thread::ThreadId);
    impl Watcher for Slow {
        fn changed(&self, _: Origin) {
            if thread::current().id() == self.1 {
                let (inside, go_on) = &*self.0.lock().unwrap();
                inside.send(()).unwrap();
                go_on.recv().unwrap();
            }
        }
    }
    let (layer, profiler) = Profiler::builder().build().unwrap();
    let (inside, is_inside) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let slow = Slow(Mutex::new((inside, goes_on)), thread::current().id());
    let watch = profiler.hand_over().watch(Arc::new(slow));
    let another = profiler.hand_over().watch(Arc::new(Told::default()));
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    thread::scope(|scope| {
        let device = dispatch.clone();
        scope.spawn(move || {
            is_inside.recv().unwrap();
            drop(another);
            tracing::dispatcher::with_default(&device, || info_span!("of the device").in_scope(|| ()));
            go_on.send(()).unwrap();
        });
        let _default = tracing::dispatcher::set_default(&dispatch);
        let entered = info_span!("of the user").entered();
        drop(watch);
        drop(entered);
    });
    profiler.finish().unwrap();
}

#[test]
fn who_comes_to_watch_an_open_window_is_told_that_it_is_open() {
    let (layer, profiler) = Profiler::builder().build().unwrap();
    let told = Arc::new(Told::default());
    let _watch = profiler.hand_over().watch(Arc::clone(&told) as _);
    assert_eq!(told.take(), ["opened"]);
    drop(layer);
    profiler.finish().unwrap();
    assert_eq!(told.take(), ["settle", "closed"]);
}
