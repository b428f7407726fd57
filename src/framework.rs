//! The API for integrations of frameworks, which attributes work that is passed on between threads to the span that
//! asked for it.
//!
//! A framework that launches on the user's threads needs nothing of this. One that launches on threads of its own takes
//! an [`Origin`] where it is asked for something, and [hands it over](HandOver) to the thread that does it. One that
//! queues work and wants to know when the user's spans change installs a [`Watcher`].

pub use crate::{
    host::{DeviceWork, HandOver, Watch, Watcher},
    recording::Origin,
};
