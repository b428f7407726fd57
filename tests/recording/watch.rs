//! Tests of watchers: when they are called for spans and windows.

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

/// A watcher that logs the callbacks it gets.
#[derive(Default)]
struct CallbackLog(Mutex<Vec<&'static str>>);

impl CallbackLog {
    fn add(&self, callback: &'static str) {
        self.0.lock().unwrap().push(callback);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Watcher for CallbackLog {
    fn arrived(&self, _: Origin) {
        self.add("arrived");
    }

    fn changed(&self, _: Origin) {
        self.add("changed");
    }

    fn settle(&self) {
        // A callback may enter spans, even one that is a step elsewhere.
        info_span!("settling").in_scope(|| self.add("settle"));
    }

    fn opened(&self, _: Origin) {
        self.add("opened");
    }

    fn closed(&self) {
        self.add("closed");
    }
}

#[test]
fn a_watcher_is_called_for_windows_and_for_the_spans_in_them() {
    let schedule = Schedule::new().wait(1).active(1).repeat(2);
    let (layer, profiler) = Profiler::builder().schedule(schedule).step_on("settling").build().unwrap();
    let log = Arc::new(CallbackLog::default());
    let watch = profiler.hand_over().watch(Arc::clone(&log) as _);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("waiting").in_scope(|| ());
        info_span!("waiting").in_scope(|| ());
        assert_eq!(log.take(), ["arrived"]);
        profiler.step();
        assert_eq!(log.take(), ["settle", "opened"]);
        info_span!("outer").in_scope(|| info_span!("inner").in_scope(|| ()));
        assert_eq!(log.take(), ["changed"; 4]);
        profiler.step();
        // The window is still open while it settles.
        assert_eq!(log.take(), ["changed", "settle", "changed", "closed"]);
        profiler.step();
        assert_eq!(log.take(), ["settle", "opened"]);
        drop(watch);
        info_span!("unwatched").in_scope(|| ());
        profiler.step();
    });
    profiler.finish().unwrap();
    assert!(log.take().is_empty());
}

#[test]
fn a_span_that_a_watcher_closes_is_no_step() {
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).step_on("settling").build().unwrap();
    let log = Arc::new(CallbackLog::default());
    let _watch = profiler.hand_over().watch(Arc::clone(&log) as _);
    let report = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        assert!(profiler.start() && profiler.stop() && profiler.start());
        profiler.finish().unwrap()
    });
    assert_eq!(report.windows(), 2);
    let edges: Vec<_> = log.take().into_iter().filter(|callback| !["arrived", "changed"].contains(callback)).collect();
    assert_eq!(edges, ["settle", "opened", "settle", "closed", "settle", "opened", "settle", "closed"]);
}

/// A watcher waits, as for a full queue of a framework. The thread that it waits for removes another watcher and enters
/// a span.
#[test]
fn a_watcher_that_waits_stops_no_other_thread() {
    struct Slow(Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>, thread::ThreadId);
    impl Watcher for Slow {
        fn changed(&self, _: Origin) {
            if thread::current().id() == self.1 {
                let (entered, go_on) = &*self.0.lock().unwrap();
                entered.send(()).unwrap();
                go_on.recv().unwrap();
            }
        }
    }
    let (layer, profiler) = Profiler::builder().build().unwrap();
    let (entered, is_entered) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let slow = Slow(Mutex::new((entered, goes_on)), thread::current().id());
    let watch = profiler.hand_over().watch(Arc::new(slow));
    let another = profiler.hand_over().watch(Arc::new(CallbackLog::default()));
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    thread::scope(|scope| {
        let device = dispatch.clone();
        scope.spawn(move || {
            is_entered.recv().unwrap();
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
fn a_watcher_installed_while_a_window_is_open_is_called_for_it() {
    let (layer, profiler) = Profiler::builder().build().unwrap();
    let log = Arc::new(CallbackLog::default());
    let _watch = profiler.hand_over().watch(Arc::clone(&log) as _);
    assert_eq!(log.take(), ["opened"]);
    drop(layer);
    profiler.finish().unwrap();
    assert_eq!(log.take(), ["settle", "closed"]);
}
