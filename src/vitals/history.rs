//! The vital signs of a run, shared by the thread that reads and those that export.

use crate::{
    analysis::{RunVitals, VitalSign, VitalSigns},
    export::LatestVitals,
    recent_readings::{Reading, RecentReadings},
    trace::{Counter, Timestamp},
};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The latest readings of a run, and the whole run so far.
#[derive(Debug, Default)]
pub(crate) struct VitalsHistory(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    latest: LatestVitals,
    recent: RecentReadings<&'static str>,
    run: RunVitals,
    /// The names of counters. Each is made once and never freed: a run has some dozens of them.
    names: FxHashMap<VitalSign, &'static str>,
}

impl Default for Kept {
    fn default() -> Self {
        let recent = RecentReadings::new(VitalsHistory::LATEST);
        Self { latest: LatestVitals::default(), recent, run: RunVitals::default(), names: FxHashMap::default() }
    }
}

impl VitalsHistory {
    /// The number of readings that are kept: those of a window of 200 seconds. Of fifty signs, they take 2.5 MB.
    const LATEST: usize = 2_048;

    /// Creates the history of a run, which shares its latest reading.
    pub(crate) fn new(latest: LatestVitals) -> Self {
        Self(Mutex::new(Kept { latest, ..Kept::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the latest reading.
    pub(crate) fn latest(&self) -> Option<Arc<VitalSigns>> {
        self.lock().latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the vital signs of the whole run so far.
    pub(crate) fn run(&self) -> RunVitals {
        self.lock().run.clone()
    }

    /// Changes the vital signs of the whole run.
    pub(super) fn change_run(&self, change: impl FnOnce(&mut RunVitals)) {
        change(&mut self.lock().run);
    }

    /// Adds a reading.
    pub(super) fn add(&self, signs: VitalSigns) {
        let mut kept = self.lock();
        let Kept { latest, recent, names, .. } = &mut *kept;
        let mut name = |sign: VitalSign| {
            let new = || &*Box::leak(format!("{}{sign}", VitalSign::COUNTER).into_boxed_str());
            *names.entry(sign).or_insert_with(new)
        };
        let values = signs.values().map(|(sign, value)| (name(sign), value)).collect();
        recent.push(Reading { at: signs.at, values });
        *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(signs));
    }

    /// Returns the readings of a window as counters. The first samples, at its start, are those of the last reading
    /// before, as a short window may have none of its own.
    pub(crate) fn counters(&self, start: Timestamp, end: Timestamp) -> Vec<Counter> {
        let kept = self.lock();
        let mut counters = kept.recent.counters(start, end, |name| name);
        let before = kept.recent.before(start).filter(|reading| reading.at < start);
        for &(name, value) in before.into_iter().flat_map(|reading| &reading.values) {
            match counters.iter_mut().find(|counter| counter.name() == name) {
                Some(counter) => counter.samples.insert(0, (start, value)),
                None => counters.push(Counter { name: name.into(), samples: vec![(start, value)] }),
            }
        }
        counters
    }

    /// Returns the last reading after a moment, up to another, by the names of counters: each reading belongs to one
    /// step, so that exporters of steps write as much as was read.
    pub(crate) fn between(&self, after: Timestamp, until: Timestamp) -> Vec<(&'static str, f64)> {
        let kept = self.lock();
        let reading = kept.recent.before(until).filter(|reading| reading.at > after);
        reading.map_or_else(Vec::new, |reading| reading.values.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::VitalsHistory;
    use crate::{
        analysis::{MachineVitals, VitalSigns},
        trace::Timestamp,
    };

    fn at(nanos: u64) -> Timestamp {
        Timestamp::from_unix_nanos(nanos)
    }

    fn history() -> VitalsHistory {
        let history = VitalsHistory::default();
        for nanos in [100, 200, 300] {
            let machine = MachineVitals { cpu: Some(nanos as f64), ..MachineVitals::default() };
            history.add(VitalSigns { at: at(nanos), machine, ..VitalSigns::default() });
        }
        history
    }

    #[test]
    fn a_window_begins_with_the_reading_before_it() {
        let samples = |start, end| {
            let counters = history().counters(at(start), at(end));
            counters.first().map(|counter| (counter.name().to_owned(), counter.samples().to_vec()))
        };
        let of = |samples: &[(u64, f64)]| {
            let samples = samples.iter().map(|&(nanos, value)| (at(nanos), value)).collect();
            Some(("vitals.machine.cpu".to_owned(), samples))
        };
        assert_eq!(samples(150, 250), of(&[(150, 100.0), (200, 200.0)]));
        assert_eq!(samples(210, 220), of(&[(210, 200.0)]));
        assert_eq!(samples(200, 300), of(&[(200, 200.0), (300, 300.0)]));
        assert_eq!(samples(10, 50), None);
    }

    #[test]
    fn a_reading_belongs_to_one_step() {
        let history = history();
        let between = |after, until| history.between(at(after), at(until)).first().map(|(_, value)| *value);
        let steps =
            [(0, 90), (90, 100), (100, 130), (130, 250), (250, 900)].map(|(after, until)| between(after, until));
        assert_eq!(steps, [None, Some(100.0), None, Some(200.0), Some(300.0)]);
        assert_eq!(history.latest().unwrap().at, at(300));
    }
}
