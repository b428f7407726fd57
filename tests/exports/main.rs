//! Tests of exported files that need no other program: golden files, recorded windows and what is
//! found in them, and corrupted windows.

#[path = "../support/mod.rs"]
mod support;

#[cfg(all(feature = "cuda", target_os = "linux"))]
mod counters;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod faults;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod fuzz;
mod golden;
#[cfg(feature = "read")]
mod machine;
#[cfg(all(feature = "cuda", feature = "read", target_os = "linux"))]
mod one_answer;
mod pipeline;
#[cfg(all(feature = "cuda", feature = "read", target_os = "linux"))]
mod queues;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod replay;
#[cfg(feature = "read")]
mod trainings;
