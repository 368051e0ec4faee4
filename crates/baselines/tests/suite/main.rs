//! One suite for all tables: they do what std's map does, and residents are found whatever resizers
//! and updaters do meanwhile.

use relativist_testing as _;

mod auto_traits;
mod key_move;
mod model;
mod random;
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

resizable!(unzip, relativist_baselines::unzip::Unzip<FixedState>);
#[cfg(target_os = "linux")]
resizable!(in_place, relativist_baselines::in_place::InPlace<FixedState>);
resizable!(sorted, relativist_baselines::sorted::Sorted<FixedState>);
resizable!(flat, relativist_baselines::flat::Flat<FixedState>);
resizable!(split_ordered, relativist_baselines::split_ordered::SplitOrdered<FixedState>);
resizable!(dual_chain, relativist_baselines::dual_chain::DualChain<FixedState>);
resizable!(ddds, relativist_baselines::ddds::Ddds<FixedState>);
resizable!(rwlock, relativist_baselines::rwlock::RwLocked<FixedState>);
resizable!(std_rwlock, relativist_baselines::rwlock::StdRwLocked<FixedState>);
resizable!(mutex, relativist_baselines::mutex::Mutexed<FixedState>);
resizable!(striped, relativist_baselines::striped::Striped<FixedState>);
unresizable!(fixed, relativist_baselines::fixed::Fixed<FixedState>);
unresizable!(key_moving, relativist_baselines::key_move::KeyMove<FixedState>);
unresizable!(tree, relativist_baselines::tree::Tree);
unresizable!(skip_list, relativist_baselines::tree::SkipList);
