//! Tests of the records that threads write for device calls and operations.

mod device_calls;
mod operations;
