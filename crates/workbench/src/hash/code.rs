//! How large the code of hash functions is, by this program's own symbols.

use std::fs;

use object::{Object, ObjectSymbol};

use super::cost::HARNESS;
use super::functions::HashFunction;
use super::instructions::relativist_counted_hashes;

/// Bytes of code of each function, inlined into a loop over keys, without those of the loop alone. What it calls is not among them.
/// Empty where the program's symbols can't be read, or were stripped.
#[must_use]
pub fn sizes(functions: &[Box<dyn HashFunction>]) -> Vec<u64> {
    let read = || {
        let program = fs::read(std::env::current_exe().ok()?).ok()?;
        let file = object::File::parse(&*program).ok()?;
        // The program may have been loaded anywhere: one symbol tells where.
        let known = relativist_counted_hashes as fn(_, _, _) -> _ as *const ();
        let linked = file.symbols().find(|symbol| symbol.name() == Ok("relativist_counted_hashes"))?.address();
        let base = (known.addr() as u64).wrapping_sub(linked);
        let size = |function: &dyn HashFunction| {
            let address = (function.code().addr() as u64).wrapping_sub(base);
            file.symbols().filter(|symbol| symbol.address() == address).map(|symbol| symbol.size()).max()
        };
        let harness = size(&HARNESS)?;
        let sizes = functions.iter().map(|function| Some(size(function.as_ref())?.saturating_sub(harness)));
        sizes.collect::<Option<Vec<u64>>>()
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::functions::all;
    use crate::hash::functions::modern::Fold;

    #[test]
    fn long_functions_are_larger_than_short_ones() {
        let functions = all(&[Fold::Low]);
        let sizes = sizes(&functions);
        assert_eq!(sizes.len(), functions.len());
        let of = |name: &str| sizes[functions.iter().position(|function| function.name() == name).unwrap()];
        // (Nothing is inlined in debug builds: what is seen there is the size of a call.)
        if !cfg!(debug_assertions) {
            assert!(of("untransformed") < of("fibonacci-64") && of("fibonacci-64") < of("fnv-1a"));
        }
        assert!(sizes.iter().all(|size| *size < 1 << 16), "{sizes:?}");
    }
}
