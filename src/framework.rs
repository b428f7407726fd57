//! The API for framework integrations, which attributes work passed between threads to the span that requested it.
//!
//! A framework that launches on the user's threads needs none of this. One that launches on its own threads takes an
//! [`Origin`] where the work is requested and [hands it over](HandOver) to the thread that does it. One that queues
//! work and needs to know when the user's spans change installs a [`Watcher`]. One that serves tensors from its own
//! memory pools has the pools [followed](HandOver::follow_pool), and reports [what it gives to
//! whom](HandOver::allocated).

pub use crate::{
    heap::Uncounted,
    host::{DeviceWork, FollowedPool, HandOver, PoolUse, ThreadSpans, Watch, Watcher},
    recording::Origin,
};
