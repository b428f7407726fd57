//! The macro that defines the ids of a trace.

/// Defines an id: a number with its own type, so that ids of different things cannot be mixed up.
///
/// There are two kinds. An *index* id is a position in a list of the trace. It is written as a unit struct and takes
/// four bytes, since the memory limit keeps a window far below 2³² of anything:
///
/// ```text
/// define_id! {
///     /// Names a [`Step`] of one trace.
///     pub struct StepId;
///
///     /// The index of the step in [`Trace::steps`](crate::Trace::steps).
///     pub fn index;
/// }
/// ```
///
/// A *number* id is a number chosen by the driver or the operating system. It is written with the type of the number:
///
/// ```text
/// define_id! {
///     /// The number of a GPU, as the driver counts them.
///     pub struct DeviceId(u32);
///
///     /// The number.
///     pub const fn as_u32;
/// }
/// ```
///
/// Both have `new`, for this crate only, and the named method, which returns the number. Both are `Copy`, ordered and
/// hashable. Further attributes, such as another `derive`, go next to the documentation.
macro_rules! define_id {
    (
        $(#[$struct_attribute:meta])*
        $struct_visibility:vis struct $Id:ident;

        $(#[$method_attribute:meta])*
        $method_visibility:vis fn $method:ident;
    ) => {
        $(#[$struct_attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        // Counted from 1, so that an `Option` of it is no larger: a trace's lists contain many.
        $struct_visibility struct $Id(std::num::NonZeroU32);

        impl $Id {
            #[allow(dead_code, reason = "some ids are made only with certain features")]
            pub(crate) fn new(index: usize) -> Self {
                Self(std::num::NonZeroU32::MIN.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)))
            }

            $(#[$method_attribute])*
            $method_visibility fn $method(self) -> usize {
                self.0.get() as usize - 1
            }
        }

        impl std::fmt::Debug for $Id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($Id)).field(&self.$method()).finish()
            }
        }
    };
    (
        $(#[$struct_attribute:meta])*
        $struct_visibility:vis struct $Id:ident($Number:ty);

        $(#[$method_attribute:meta])*
        $method_visibility:vis const fn $method:ident;
    ) => {
        $(#[$struct_attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $struct_visibility struct $Id($Number);

        impl $Id {
            /// Returns the id with this number.
            pub const fn new(number: $Number) -> Self {
                Self(number)
            }

            $(#[$method_attribute])*
            $method_visibility const fn $method(self) -> $Number {
                self.0
            }
        }
    };
}

pub(super) use define_id;
