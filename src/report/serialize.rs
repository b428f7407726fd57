use super::Report;
use serde::ser::{Serialize, SerializeStruct, Serializer};

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut report = serializer.serialize_struct("Report", 16)?;
        report.serialize_field("windows", &self.windows)?;
        report.serialize_field("recorded", &self.recorded)?;
        report.serialize_field("spans", &self.spans)?;
        report.serialize_field("steps", &self.steps)?;
        report.serialize_field("averages", &self.averages().limit(usize::MAX).rows())?;
        report.serialize_field("gpu", &self.gpus.state.to_string())?;
        report.serialize_field("devices", &self.gpus.devices)?;
        report.serialize_field("kernels", &self.kernels().limit(usize::MAX).rows())?;
        report.serialize_field("operations", &self.operations().limit(usize::MAX).rows())?;
        report.serialize_field("gpu_steps", &self.gpus.steps)?;
        report.serialize_field("attributions", &self.gpus.attributions)?;
        report.serialize_field("memory", &self.memory().peaks().collect::<Vec<_>>())?;
        report.serialize_field("losses", &self.losses)?;
        report.serialize_field("filtered", &self.filtered.map(|level| level.to_string()))?;
        report.serialize_field("files", &self.files)?;
        report.serialize_field("deliveries", &self.deliveries)?;
        report.end()
    }
}
