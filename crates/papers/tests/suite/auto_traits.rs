//! Which tables can be sent to other threads and shared with them: all but the one for a single
//! thread. Keys and values are `u64`, or belong to one thread, so variance does not matter.

use foldhash::fast::FixedState;
use relativist_papers::tables::ddds::Ddds;
use relativist_papers::tables::dual_chain::DualChain;
use relativist_papers::tables::fixed::Fixed;
use relativist_papers::tables::key_move::KeyMove;
use relativist_papers::tables::sorted::Sorted;
use relativist_papers::tables::split_ordered::SplitOrdered;
use relativist_papers::tables::unzip::Unzip;
use relativist_papers::tables::xkernel::{Const, Map};
use relativist_testing::auto_traits;

// The tables are made for measurements, and guarantee nothing after panics.
auto_traits! {
    Unzip<FixedState> => + + + -,
    Sorted<FixedState> => + + + -,
    SplitOrdered<FixedState> => + + + -,
    DualChain<FixedState> => + + + -,
    Ddds<FixedState> => + + + -,
    Fixed<FixedState> => + + + -,
    KeyMove<FixedState> => + + + +,
    // Remembers what it found last, in a `Cell`.
    Map<Const<8>> => + - + -,
}
