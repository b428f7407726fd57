use crate::profiled::{Profiled, in_optimizer_span};
use burn::{
    lr_scheduler::module_lr_scheduler::ModuleLearningRate,
    module::{Devices, Module, ModuleMapper, ModuleVisitor, ParamGroup},
    optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams},
    store::{ModuleRecord, RecordError},
    tensor::Device,
    train::{InferenceStep, TrainOutput, TrainStep},
};

impl<M: TrainStep + Module> TrainStep for Profiled<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, item: M::Input) -> TrainOutput<M::Output> {
        tracing::info_span!(Profiled::TRAIN_STEP).in_scope(|| TrainStep::step(&self.0, item))
    }

    fn optimize(self, optimizer: &mut ModuleOptimizer, rate: ModuleLearningRate, gradients: GradientsParams) -> Self {
        in_optimizer_span(|| Self(self.0.optimize(optimizer, rate, gradients)))
    }

    fn optimize_multi(
        self,
        optimizer: &mut ModuleOptimizer,
        rate: ModuleLearningRate,
        gradients: MultiGradientsParams,
    ) -> Self {
        in_optimizer_span(|| Self(self.0.optimize_multi(optimizer, rate, gradients)))
    }
}

impl<M: InferenceStep> InferenceStep for Profiled<M> {
    type Input = M::Input;
    type Output = M::Output;

    fn step(&self, item: M::Input) -> M::Output {
        tracing::info_span!(Profiled::INFERENCE_STEP).in_scope(|| InferenceStep::step(&self.0, item))
    }
}

/// Not derived, because a derived module puts a field name in front of each path, and records would not fit the model.
impl<M: Module> Module for Profiled<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.0.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self(self.0.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        Self(self.0.to_device(device))
    }

    fn train(self) -> Self {
        Self(self.0.train())
    }

    fn valid(&self) -> Self {
        Self(self.0.valid())
    }

    fn materialize(self) -> Self {
        Self(self.0.materialize())
    }

    fn num_params(&self) -> usize {
        self.0.num_params()
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.0.visit(visitor);
    }

    fn map<F: ModuleMapper>(self, mapper: &mut F) -> Self {
        Self(self.0.map(mapper))
    }

    fn into_record(self) -> ModuleRecord {
        self.0.into_record()
    }

    fn into_record_group(self, group: ParamGroup) -> ModuleRecord {
        self.0.into_record_group(group)
    }

    fn try_load_record(self, record: ModuleRecord) -> Result<Self, RecordError> {
        self.0.try_load_record(record).map(Self)
    }
}
