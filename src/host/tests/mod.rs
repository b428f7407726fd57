mod device_calls;
mod operations;
