//! A writer of Python's pickle format, for values of `None`, `bool`, `int`, `str`, `list`, `dict` and pairs.
//!
//! It writes protocol 2, which every Python 3 reads, and uses only opcodes that the viewer at pytorch.org/memory_viz
//! reads as well. The opcodes are those of Python's `pickletools`.

use std::{
    collections::HashMap,
    io::{self, Write},
};

/// A place in the memo of a pickle: a value that can be written again in five bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shared(u32);

/// Writes one value, and all values in it.
pub(super) struct Pickle<'a> {
    out: &'a mut dyn Write,
    texts: HashMap<String, Shared>,
    shared: u32,
}

impl<'a> Pickle<'a> {
    /// Begins a pickle.
    pub(super) fn new(out: &'a mut dyn Write) -> io::Result<Self> {
        out.write_all(b"\x80\x02")?;
        Ok(Self { out, texts: HashMap::new(), shared: 0 })
    }

    /// Ends the pickle.
    pub(super) fn end(self) -> io::Result<()> {
        self.out.write_all(b".")
    }

    pub(super) fn bool(&mut self, value: bool) -> io::Result<()> {
        self.out.write_all(if value { b"\x88" } else { b"\x89" })
    }

    pub(super) fn int(&mut self, value: u64) -> io::Result<()> {
        let bytes = value.to_le_bytes();
        match value {
            0..0x100 => self.out.write_all(&[b'K', bytes[0]]),
            0x100..0x1_0000 => self.out.write_all(&[b'M', bytes[0], bytes[1]]),
            0x1_0000..0x8000_0000 => {
                self.out.write_all(b"J")?;
                self.out.write_all(&bytes[..4])
            }
            _ => {
                // As many bytes as it takes, of which the highest bit is the sign.
                let length = (64 - value.leading_zeros() as usize) / 8 + 1;
                self.out.write_all(&[0x8a, length as u8])?;
                self.out.write_all(&bytes[..length.min(8)])?;
                self.out.write_all(if length > 8 { b"\0" } else { b"" })
            }
        }
    }

    /// Writes a text. Each is written once, however often it occurs.
    pub(super) fn str(&mut self, text: &str) -> io::Result<()> {
        if let Some(&shared) = self.texts.get(text) {
            return self.again(shared);
        }
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        self.out.write_all(b"X")?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(text.as_bytes())?;
        let shared = self.share()?;
        self.texts.insert(text.to_owned(), shared);
        Ok(())
    }

    /// Writes a list. Items are appended one by one, since the viewer cannot append very many at once.
    pub(super) fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(b"]")?;
        for item in items {
            each(self, item)?;
            self.out.write_all(b"a")?;
        }
        Ok(())
    }

    /// Writes a dictionary, of which `entries` writes each [`key`](Self::key) and then its value.
    pub(super) fn dict(&mut self, entries: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.out.write_all(b"}(")?;
        entries(self)?;
        self.out.write_all(b"u")
    }

    /// Writes the key of the next value in a dictionary.
    pub(super) fn key(&mut self, key: &str) -> io::Result<&mut Self> {
        self.str(key)?;
        Ok(self)
    }

    /// Writes a tuple of two numbers.
    pub(super) fn pair(&mut self, first: u64, second: u64) -> io::Result<()> {
        self.int(first)?;
        self.int(second)?;
        self.out.write_all(b"\x86")
    }

    /// Keeps the value just written, to write it again.
    pub(super) fn share(&mut self) -> io::Result<Shared> {
        let shared = Shared(self.shared);
        self.shared = self.shared.checked_add(1).ok_or_else(|| io::Error::other("too many values for a pickle"))?;
        self.out.write_all(b"r")?;
        self.out.write_all(&shared.0.to_le_bytes())?;
        Ok(shared)
    }

    /// Writes a value again: in Python, it is the same object.
    pub(super) fn again(&mut self, shared: Shared) -> io::Result<()> {
        self.out.write_all(b"j")?;
        self.out.write_all(&shared.0.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::Pickle;
    use std::{
        io::{self, Write},
        process::{Command, Stdio},
    };

    /// Returns how Python prints a pickle; `None` without Python, which fails if `CI=true`.
    fn in_python(write: impl FnOnce(&mut Pickle<'_>) -> io::Result<()>) -> Option<String> {
        let mut bytes = Vec::new();
        let mut pickle = Pickle::new(&mut bytes).unwrap();
        write(&mut pickle).unwrap();
        pickle.end().unwrap();
        let script = "import pickle, sys; print(ascii(pickle.load(sys.stdin.buffer)))";
        let python = Command::new("python3").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut python) = python else {
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no python3: it does NOT read pickles");
            eprintln!("\n*** no python3: it does NOT read pickles ***\n");
            return None;
        };
        python.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(output.status.success(), "{bytes:?}");
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    #[test]
    fn python_reads_numbers_of_all_sizes() {
        let powers = (0..64).flat_map(|power| [(1_u64 << power) - 1, 1 << power, (1 << power) + 1]);
        let numbers: Vec<u64> = powers.chain([u64::MAX]).collect();
        let Some(read) = in_python(|pickle| pickle.list(&numbers, |pickle, number| pickle.int(*number))) else {
            return;
        };
        assert_eq!(read, format!("{numbers:?}"));
    }

    #[test]
    fn python_reads_nested_values_and_texts() {
        let read = in_python(|pickle| {
            pickle.dict(|pickle| {
                pickle.key("flags")?.list([true, false], Pickle::bool)?;
                pickle.key("größe")?.pair(1, 300)?;
                pickle.key("empty")?.list([0; 0], Pickle::int)?;
                pickle.key("texts")?.list(["", "a\n'\0\u{1f600}", "flags"], Pickle::str)?;
                pickle.key("dict")?.dict(|_| Ok(()))
            })
        });
        let Some(read) = read else { return };
        let texts = r#"['', "a\n'\x00\U0001f600", 'flags']"#;
        let expected = format!(
            r"{{'flags': [True, False], 'gr\xf6\xdfe': (1, 300), 'empty': [], 'texts': {texts}, 'dict': {{}}}}"
        );
        assert_eq!(read, expected);
    }

    #[test]
    fn a_shared_value_is_written_once() {
        let many = |count: usize| {
            in_python(|pickle| {
                let mut shared = None;
                pickle.list(0..count, |pickle, index| match shared {
                    Some(shared) => pickle.again(shared),
                    None => {
                        pickle.list([index as u64], Pickle::int)?;
                        shared = Some(pickle.share()?);
                        Ok(())
                    }
                })
            })
        };
        let Some(read) = many(70_000) else { return };
        assert_eq!(read.matches("[0]").count(), 70_000);
    }
}
