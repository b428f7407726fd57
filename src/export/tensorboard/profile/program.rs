//! The XLA program from which XProf takes floating-point operations.

use super::{
    ops::{OpId, Ops},
    shares::Share,
};
use crate::export::wire;
use rustc_hash::FxHashMap;

/// An XLA program in which each operation is a custom call, with its source location.
///
/// The Roofline and HLO pages count floating-point operations only for instructions of an XLA program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: String,
    instructions: Vec<(String, OpId)>,
    /// The instruction of each operation and share. XProf applies the share of the last of several consecutive kernels
    /// to each of them, so kernels of an operation with different shares are different instructions.
    known: FxHashMap<(OpId, Share), InstructionId>,
    /// The number of instructions that requested each name.
    names: FxHashMap<String, u32>,
}

/// The number of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InstructionId(u32);

impl InstructionId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Program {
    /// The number of the one program.
    pub(super) const ID: u64 = 1;
    /// The maximum number of instructions. Later operations are not in a program.
    pub(super) const MAX_INSTRUCTIONS: usize = 20_000;

    pub(super) fn new(process: &str) -> Self {
        let letters = process.chars().take(200).map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
        let name: String = letters.collect();
        let name = if name.is_empty() { "program".to_owned() } else { name };
        Self { name, instructions: Vec::new(), known: FxHashMap::default(), names: FxHashMap::default() }
    }

    /// Returns the instruction of an operation's kernels with this share, or `None` if there are too many.
    pub(super) fn instruction(&mut self, ops: &Ops<'_>, op: OpId, share: Share) -> Option<InstructionId> {
        if let Some(&known) = self.known.get(&(op, share)) {
            return Some(known);
        }
        if self.is_full() {
            return None;
        }
        let id = InstructionId(self.instructions.len() as u32);
        let name = self.free_name(&ops.get(op).path.replace('/', "."));
        self.instructions.push((name, op));
        self.known.insert((op, share), id);
        Some(id)
    }

    /// Returns a unique name: `plain`, or `plain` and the first number that makes it unique.
    fn free_name(&mut self, plain: &str) -> String {
        loop {
            let count = self.names.entry(plain.to_owned()).or_insert(0);
            *count += 1;
            let name = if *count == 1 { plain.to_owned() } else { format!("{plain}.{count}") };
            if name == plain || self.names.insert(name.clone(), 1).is_none() {
                return name;
            }
        }
    }

    /// Returns whether no more instructions fit, so that there may be operations outside the program.
    pub(super) fn is_full(&self) -> bool {
        self.instructions.len() == Self::MAX_INSTRUCTIONS
    }

    pub(super) fn instruction_name(&self, id: InstructionId) -> &str {
        &self.instructions[id.index()].0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Encodes the program as an `HloProto`: one computation of custom calls, whose results form a tuple.
    pub(super) fn encode(&self, ops: &Ops<'_>) -> Vec<u8> {
        const F32: u64 = 11;
        const TUPLE: u64 = 13;
        let mut number_shape = Vec::new();
        wire::number(&mut number_shape, 2, F32);
        wire::bytes(&mut number_shape, 5, &[]);
        let mut tuple_shape = Vec::new();
        wire::number(&mut tuple_shape, 2, TUPLE);
        let mut result = Vec::new();
        let mut computation = Vec::new();
        wire::bytes(&mut computation, 1, b"main");
        for (index, (name, op)) in self.instructions.iter().enumerate() {
            let op = ops.get(*op);
            let number = index as u64 + 1;
            wire::message(&mut computation, 2, |out| {
                wire::bytes(out, 1, name.as_bytes());
                wire::bytes(out, 2, b"custom-call");
                wire::bytes(out, 3, &number_shape);
                wire::message(out, 7, |out| {
                    wire::bytes(out, 1, op.kind.as_bytes());
                    wire::bytes(out, 2, op.path.as_bytes());
                    if let Some(callsite) = op.callsite {
                        callsite.file().into_iter().for_each(|file| wire::bytes(out, 3, file.as_bytes()));
                        callsite.line().into_iter().for_each(|line| wire::number(out, 4, line.into()));
                    }
                });
                wire::bytes(out, 28, op.kind.as_bytes());
                wire::number(out, 35, number);
            });
            wire::bytes(&mut tuple_shape, 4, &number_shape);
            wire::number(&mut result, 36, number);
        }
        let root = self.instructions.len() as u64 + 1;
        wire::message(&mut computation, 2, |out| {
            wire::bytes(out, 1, b"tuple");
            wire::bytes(out, 2, b"tuple");
            wire::bytes(out, 3, &tuple_shape);
            wire::number(out, 35, root);
            out.extend_from_slice(&result);
        });
        let mut program_shape = Vec::new();
        wire::bytes(&mut program_shape, 2, &tuple_shape);
        wire::bytes(&mut computation, 4, &program_shape);
        wire::number(&mut computation, 5, 1);
        wire::number(&mut computation, 6, root);
        let mut module = Vec::new();
        wire::bytes(&mut module, 1, self.name.as_bytes());
        wire::bytes(&mut module, 2, b"main");
        wire::bytes(&mut module, 3, &computation);
        wire::bytes(&mut module, 4, &program_shape);
        wire::number(&mut module, 5, Self::ID);
        wire::number(&mut module, 6, 1);
        let mut hlo = Vec::new();
        wire::bytes(&mut hlo, 1, &module);
        hlo
    }
}

#[cfg(test)]
mod tests {
    use super::Program;

    #[test]
    fn names_are_unique() {
        let mut program = Program::new("train");
        let names = ["a", "a.2", "a", "a", "a.2", "b"].map(|name| program.free_name(name));
        assert_eq!(names, ["a", "a.2", "a.3", "a.4", "a.2.2", "b"]);
    }
}
