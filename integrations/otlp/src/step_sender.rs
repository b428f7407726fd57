//! The step exporters: one that sends, and one that reports why nothing is sent.

use crate::sending::Sending;
use kernspan::export::{Delivery, ExportResult, StepExporter, StepSummary};
use std::{error::Error, sync::Arc};

/// Sends metrics of all steps, and at the end the span of the run.
#[derive(Debug)]
pub(crate) struct StepSender {
    sending: Arc<Sending>,
    panicked: bool,
}

impl StepSender {
    pub(crate) fn new(sending: Arc<Sending>) -> Self {
        Self { sending, panicked: false }
    }
}

impl StepExporter for StepSender {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.sending.send_steps(steps, false);
        Ok(())
    }

    fn panicked(&mut self) {
        self.panicked = true;
    }

    fn finish(&mut self) -> ExportResult {
        self.sending.send_run(self.panicked);
        self.sending.send_steps(&[], true);
        self.sending.finish();
        Ok(Vec::new())
    }

    fn deliveries(&self) -> Vec<Delivery> {
        self.sending.deliveries()
    }
}

/// Sends nothing, and fails with the reason: a setting is invalid.
#[derive(Debug)]
pub(crate) struct NotStarted(pub(crate) String);

impl StepExporter for NotStarted {
    fn steps(&mut self, _: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err(self.0.clone().into())
    }
}
