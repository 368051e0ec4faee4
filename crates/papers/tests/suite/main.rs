//! One suite for all tables: they do what std's map does, and residents are found whatever resizers
//! and updaters do meanwhile.

use relativist_testing as _;

mod auto_traits;
mod key_move;
mod model;
mod stress;
mod xkernel;

use foldhash::fast::FixedState;

/// The tests of a table that can be resized.
macro_rules! resizable {
    ($module:ident, $table:ty) => {
        mod $module {
            use super::*;

            type Tested = $table;

            #[test]
            fn does_what_std_does_at_any_size() {
                model::resized::<Tested>();
            }

            #[test]
            fn residents_are_found_while_it_is_resized() {
                stress::resized::<Tested>();
            }

            #[test]
            fn an_account_is_kept() {
                model::costs::<Tested>();
            }
        }
    };
}

/// The tests of a table that can't.
macro_rules! unresizable {
    ($module:ident, $table:ty) => {
        mod $module {
            use super::*;

            #[test]
            fn does_what_std_does() {
                model::fixed::<$table>();
            }

            #[test]
            fn residents_are_found() {
                stress::fixed::<$table>();
            }
        }
    };
}

resizable!(unzip, relativist_papers::tables::unzip::Unzip<FixedState>);
#[cfg(target_os = "linux")]
resizable!(in_place, relativist_papers::tables::in_place::InPlace<FixedState>);
resizable!(sorted, relativist_papers::tables::sorted::Sorted<FixedState>);
resizable!(split_ordered, relativist_papers::tables::split_ordered::SplitOrdered<FixedState>);
resizable!(dual_chain, relativist_papers::tables::dual_chain::DualChain<FixedState>);
resizable!(ddds, relativist_papers::tables::ddds::Ddds<FixedState>);
resizable!(rwlock, relativist_papers::tables::rwlock::RwLocked<FixedState>);
resizable!(mutex, relativist_papers::tables::mutex::Mutexed<FixedState>);
unresizable!(fixed, relativist_papers::tables::fixed::Fixed<FixedState>);
unresizable!(key_moving, relativist_papers::tables::key_move::KeyMove<FixedState>);
unresizable!(tree, relativist_papers::tables::tree::Tree);
