//! Metrics of vital signs, unless other metrics have the same figures.

use super::{
    encode::Writer,
    instruments::{self, Instrument, SIGN},
};
use kernspan::analysis::{VitalSign, VitalSigns, VitalSubject, VitalUnit};

/// The metrics by the unit of signs, and the factor from that unit to the metric's own.
const METRICS: [(VitalUnit, Instrument, f64); 9] = [
    (VitalUnit::Percent, instruments::VITALS_UTILIZATION, 0.01),
    (VitalUnit::Bytes, instruments::VITALS_MEMORY, 1.0),
    (VitalUnit::BytesPerSecond, instruments::VITALS_THROUGHPUT, 1.0),
    (VitalUnit::Celsius, instruments::VITALS_TEMPERATURE, 1.0),
    (VitalUnit::Hertz, instruments::VITALS_FREQUENCY, 1.0),
    (VitalUnit::Watts, instruments::VITALS_POWER, 1.0),
    (VitalUnit::Joules, instruments::VITALS_ENERGY, 1.0),
    (VitalUnit::PerSecond, instruments::VITALS_EVENTS, 1.0),
    (VitalUnit::Number, instruments::VITALS_VALUE, 1.0),
];

/// Writes a reading. Its points have the time at which it was read, so that one which is sent again, as the reading
/// thread is blocked, does not look new.
pub(super) fn write(vitals: &VitalSigns, writer: &mut Writer<'_>) {
    let signs: Vec<_> = vitals.values().filter(|&(sign, _)| !is_sent_otherwise(sign)).collect();
    for (unit, instrument, factor) in METRICS {
        writer.metric(&instrument, |points| {
            points.read_at(vitals.at);
            for (sign, value) in signs.iter().filter(|(sign, _)| sign.unit() == unit) {
                points.number(&[(SIGN, &sign.to_string())], factor * value);
            }
        });
    }
}

/// Whether a metric of the process or of hardware has the same figure.
fn is_sent_otherwise(sign: VitalSign) -> bool {
    match sign.subject() {
        // `process.memory.usage`, `process.thread.count`.
        VitalSubject::Process => matches!(sign.key(), "resident" | "threads"),
        // `hw.gpu.utilization` and so on.
        VitalSubject::Gpu(_) => {
            matches!(sign.key(), "utilization" | "memory" | "memory_used" | "temperature" | "power" | "energy")
        }
        _ => false,
    }
}
