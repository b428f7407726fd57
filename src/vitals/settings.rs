//! The settings for vital signs.

use super::threshold::{Crossing, Hook, Threshold};
use std::{fmt, sync::Arc, time::Duration};

/// Settings for vital signs: see [`ProfilerBuilder::vitals`](crate::ProfilerBuilder::vitals).
///
/// | setting | by default |
/// |---|---|
/// | [`every`](Self::every) | [`EVERY`](Self::EVERY), a second |
/// | [`every_in_windows`](Self::every_in_windows) | [`EVERY_IN_WINDOWS`](Self::EVERY_IN_WINDOWS), 100 ms |
/// | [`threshold`](Self::threshold) | [`Threshold::defaults`] |
/// | [`on_crossing`](Self::on_crossing) | a warning of `tracing`, and nothing else |
/// | [`carbon`](Self::carbon), [`price`](Self::price) | not computed |
///
/// ```
/// use kernspan::{Profiler, Vitals};
///
/// let vitals = Vitals::default().threshold("machine.iowait > 20%".parse()?).price(0.31);
/// let (layer, profiler) = Profiler::builder().vitals(vitals).build()?;
/// # drop(layer);
/// // … train …
/// println!("{:?}", profiler.vitals().and_then(|vitals| vitals.process.cpus));
/// let report = profiler.finish()?;
/// for sign in &report.vitals().signs {
///     println!("{}: {} on average", sign.sign, sign.sign.unit().format(sign.average));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "pass it to `ProfilerBuilder::vitals`"]
pub struct Vitals {
    pub(super) every: Duration,
    pub(super) every_in_windows: Duration,
    pub(super) thresholds: Vec<Threshold>,
    pub(super) hook: Option<Hook>,
    /// Grams of CO₂ for each kilowatt-hour, and where the number comes from.
    pub(super) carbon: Option<(f64, String)>,
    /// The price of a kilowatt-hour.
    pub(super) price: Option<f64>,
}

impl Vitals {
    /// The default of [`every`](Self::every).
    pub const EVERY: Duration = Duration::from_secs(1);
    /// The default of [`every_in_windows`](Self::every_in_windows).
    pub const EVERY_IN_WINDOWS: Duration = Duration::from_millis(100);
    /// The shortest interval: Linux counts CPU time in hundredths of a second.
    pub const LEAST: Duration = Duration::from_millis(10);

    /// Sets the time between two readings while no window is open. By default, [`Self::EVERY`].
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval;
        self
    }

    /// Sets the time between two readings while a window is open. By default, [`Self::EVERY_IN_WINDOWS`], or
    /// [`every`](Self::every) if that is shorter.
    pub fn every_in_windows(mut self, interval: Duration) -> Self {
        self.every_in_windows = interval;
        self
    }

    /// Adds a threshold, instead of a default one of the same sign. By default, there are [`Threshold::defaults`].
    pub fn threshold(mut self, threshold: Threshold) -> Self {
        self.thresholds.retain(|known| !known.is_of_same(&threshold));
        self.thresholds.push(threshold);
        self
    }

    /// Removes all thresholds, the default ones too.
    pub fn without_thresholds(mut self) -> Self {
        self.thresholds.clear();
        self
    }

    /// Sets a function that is called once for each threshold, when it is first crossed, after the warning. It runs on
    /// the thread that reads. By default, there is none.
    pub fn on_crossing(mut self, hook: impl Fn(&Crossing) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    /// Sets how much carbon dioxide is given off for each kilowatt-hour, in grams, and where that number comes from,
    /// which the report repeats. By default, carbon dioxide is not computed: it differs by more than ten times between
    /// regions, so it is never guessed.
    ///
    /// ```
    /// # use kernspan::Vitals;
    /// let vitals = Vitals::default().carbon(85.0, "our supplier's statement of 2025");
    /// # drop(vitals);
    /// ```
    pub fn carbon(mut self, grams_per_kwh: f64, source: impl Into<String>) -> Self {
        self.carbon = Some((grams_per_kwh, source.into()));
        self
    }

    /// Sets the price of a kilowatt-hour, in any currency. By default, the cost is not computed.
    pub fn price(mut self, per_kwh: f64) -> Self {
        self.price = Some(per_kwh);
        self
    }

    /// Returns the problem with the settings, if there is one.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, interval) in [("every", self.every), ("every_in_windows", self.every_in_windows)] {
            if interval < Self::LEAST {
                return Err(format!("`{name}` is {interval:?}; it must be {:?} or more", Self::LEAST));
            }
        }
        let numbers = [("carbon", self.carbon.as_ref().map(|carbon| carbon.0)), ("price", self.price)];
        for (name, number) in numbers {
            if number.is_some_and(|number| !number.is_finite() || number < 0.0) {
                return Err(format!("`{name}` is {}; it must be a number from 0", number.unwrap_or_default()));
            }
        }
        Ok(())
    }
}

impl Default for Vitals {
    fn default() -> Self {
        Self {
            every: Self::EVERY,
            every_in_windows: Self::EVERY_IN_WINDOWS,
            thresholds: Threshold::defaults(),
            hook: None,
            carbon: None,
            price: None,
        }
    }
}

impl fmt::Debug for Vitals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vitals")
            .field("every", &self.every)
            .field("every_in_windows", &self.every_in_windows)
            .field("thresholds", &self.thresholds)
            .finish_non_exhaustive()
    }
}
