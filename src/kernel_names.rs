//! Names of kernels, shortened by their meaning. The parts of a name that tell it from no other name in a table are
//! left out: see [`short_kernels`].

mod demangled;
mod parts;
mod words;

use self::parts::{KernelName, Rank};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use unicode_width::UnicodeWidthStr;

/// Returns a short form of the name of each kernel: what it does, then the functor, the types or the tile that it does
/// it with.
///
/// Different names have different forms: those that would be alike have more of the parts in which they differ, or else
/// a number. So the form of a name depends on the others. Names that are short, or of copies, stay as they are. Tables
/// of reports and HTML pages print these forms; files for other programs have the names in full.
///
/// ```
/// let product = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_\
///     execute_kernel__5x_cublas";
/// let relu = "void at::native::vectorized_elementwise_kernel<4, at::native::AbsFunctor<float>, \
///     std::array<char*, 2ul> >(int, at::native::AbsFunctor<float>, std::array<char*, 2ul>)";
/// let short = kernspan::report::short_kernels(&[product, relu, "affine_f32"]);
/// assert_eq!(short, ["xmma_gemm_f32 128×128×8", "elementwise_kernel<Abs>", "affine_f32"]);
/// ```
#[must_use]
pub fn short_kernels<S: AsRef<str>>(names: &[S]) -> Vec<String> {
    Kernels::of(names).texts()
}

/// Returns a short form of each name, without words that say little if it would be wider than `width` columns of text.
/// It may still be.
pub(crate) fn tight_kernels<S: AsRef<str>>(names: &[S], width: usize) -> Vec<String> {
    let mut kernels = Kernels::of(names);
    for name in &mut kernels.names {
        name.is_tight = name.text().width() > width;
    }
    kernels.tell_apart();
    kernels.texts()
}

/// Gives different names that have the same text a number each, in at most `width` columns of text.
pub(crate) fn numbered<S: AsRef<str>>(names: &[S], mut texts: Vec<String>, width: usize) -> Vec<String> {
    let mut used: FxHashSet<String> = FxHashSet::default();
    let mut known: FxHashMap<&str, String> = FxHashMap::default();
    for (name, text) in names.iter().zip(&mut texts) {
        let numbered = known.entry(name.as_ref()).or_insert_with(|| {
            let fits = |text: &String| text.width() <= width && !used.contains(text);
            let with_number = |number: usize| {
                let suffix = format!(" #{number}");
                let mut start = text.clone();
                while start.width() + suffix.len() > width && start.pop().is_some() {}
                start + &suffix
            };
            let own = Some(text.clone()).filter(fits);
            own.or_else(|| (2..=names.len()).map(with_number).find(fits)).unwrap_or_else(|| text.clone())
        });
        used.insert(numbered.clone());
        text.clone_from(numbered);
    }
    texts
}

/// The names of a table.
struct Kernels<'a> {
    full: Vec<&'a str>,
    names: Vec<KernelName>,
}

impl<'a> Kernels<'a> {
    fn of<S: AsRef<str>>(names: &'a [S]) -> Self {
        let full: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let names = full.iter().map(|name| KernelName::of(name)).collect();
        let mut kernels = Self { full, names };
        kernels.tell_apart();
        kernels
    }

    /// Shows more of the names that would be alike, until they differ or all of them is shown.
    fn tell_apart(&mut self) {
        let mut is_done = false;
        while !is_done {
            let mut alike: FxHashMap<String, Vec<usize>> = FxHashMap::default();
            for (index, name) in self.names.iter().enumerate() {
                alike.entry(name.text()).or_default().push(index);
            }
            is_done = true;
            for group in alike.into_values() {
                if group.iter().all(|&index| self.full[index] == self.full[group[0]]) {
                    continue;
                }
                let ranks: BTreeSet<Rank> = group.iter().flat_map(|&index| self.names[index].hidden_ranks()).collect();
                let differs = |rank: &Rank| {
                    let text = |index: usize| self.names[index].hidden(*rank);
                    group.iter().any(|&index| text(index) != text(group[0]))
                };
                if let Some(rank) = ranks.into_iter().find(differs) {
                    group.into_iter().for_each(|index| self.names[index].show(rank));
                    is_done = false;
                }
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        numbered(&self.full, self.names.iter().map(KernelName::text).collect(), usize::MAX)
    }
}

#[cfg(test)]
mod tests;
