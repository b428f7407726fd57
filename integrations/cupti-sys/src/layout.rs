//! A macro for structs that have the layout of a C struct.

/// Defines `repr(C)` structs and asserts the offset of each field.
macro_rules! structs {
    ($(
        $(#[$about:meta])*
        $name:ident, $c_name:literal { $($(#[$field_about:meta])* $offset:literal $field:ident: $type:ty,)* }
    )*) => {$(
        $(#[$about])*
        #[doc = concat!("\n\nThe beginning of `", $c_name, "`.")]
        #[doc(alias = $c_name)]
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name { $($(#[$field_about])* pub $field: $type,)* }

        $(const _: () = assert!(::std::mem::offset_of!($name, $field) == $offset);)*

        impl $name {
            /// The fields' names, offsets and types, for checks against NVIDIA's headers.
            #[doc(hidden)]
            pub const FIELDS: &'static [(&'static str, usize, &'static str)] =
                &[$((stringify!($field), $offset, stringify!($type))),*];
        }
    )*};
}

pub(crate) use structs;
