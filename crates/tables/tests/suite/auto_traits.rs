//! Which tables can be sent to other threads and shared with them: all but the one for a single thread.
//! Keys and values are `u64`, or belong to one thread, so variance does not matter.

use foldhash::fast::FixedState;
use relativist_tables::ddds::Ddds;
use relativist_tables::dual_chain::DualChain;
use relativist_tables::fixed::Fixed;
use relativist_tables::sorted::Sorted;
use relativist_tables::split_ordered::SplitOrdered;
use relativist_tables::striped::Striped;
use relativist_tables::unzip::Unzip;
use relativist_tables::xkernel::{Const, Map};

// They are made for measurements, and guarantee nothing after panics.
auto_traits! {
    Unzip<FixedState> => + + + -,
    Sorted<FixedState> => + + + -,
    SplitOrdered<FixedState> => + + + -,
    DualChain<FixedState> => + + + -,
    Ddds<FixedState> => + + + -,
    Fixed<FixedState> => + + + -,
    Striped<FixedState> => + + + -,
    // Remembers what it found last, in a `Cell`.
    Map<Const<8>> => + - + -,
}
