//! One suite for all tables: what std's map does, and that residents are found whatever resizers and updaters do meanwhile.

use relativist_testing as _;

#[path = "../../../rcu/tests/support/auto_traits.rs"]
#[macro_use]
#[allow(dead_code)]
mod traits;

mod auto_traits;
mod model;
mod random;
mod stress;
mod xkernel;

use foldhash::fast::FixedState;
use relativist_tables as tables;

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

resizable!(unzip, tables::unzip::Unzip<FixedState>);
#[cfg(target_os = "linux")]
resizable!(in_place, tables::in_place::InPlace<FixedState>);
resizable!(sorted, tables::sorted::Sorted<FixedState>);
resizable!(split_ordered, tables::split_ordered::SplitOrdered<FixedState>);
resizable!(dual_chain, tables::dual_chain::DualChain<FixedState>);
resizable!(ddds, tables::ddds::Ddds<FixedState>);
resizable!(rwlock, tables::rwlock::RwLocked<FixedState>);
resizable!(std_rwlock, tables::rwlock::StdRwLocked<FixedState>);
resizable!(mutex, tables::mutex::Mutexed<FixedState>);
resizable!(striped, tables::striped::Striped<FixedState>);
unresizable!(fixed, tables::fixed::Fixed<FixedState>);
unresizable!(tree, tables::tree::Tree);
unresizable!(skip_list, tables::tree::SkipList);
