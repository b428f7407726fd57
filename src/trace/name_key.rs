//! A name's identity, which is cheaper to compare and to hash than its text.

/// The address and the length of a name's text.
///
/// A trace stores most names once, as an `Arc<str>` shared by everything that has the name, and names of kernels are
/// long. As long as the texts are not freed, names with the same key are equal. The reverse does not hold: a name that
/// is stored twice has two keys. So a key may decide whether work is repeated, but never what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameKey {
    address: usize,
    len: usize,
}

impl NameKey {
    pub(crate) fn of(name: &str) -> Self {
        Self { address: name.as_ptr().addr(), len: name.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::NameKey;
    use std::sync::Arc;

    #[test]
    fn only_names_that_share_their_text_have_the_same_key() {
        let [first, second]: [Arc<str>; 2] = ["gemm".into(), "gemm".into()];
        assert_eq!(NameKey::of(&first), NameKey::of(&first.clone()));
        assert_ne!(NameKey::of(&first), NameKey::of(&second));
        assert_ne!(NameKey::of(&first), NameKey::of(&first[..3]));
    }
}
