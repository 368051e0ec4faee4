//! Which tables can be sent to other threads and shared with them: all but the one for a single
//! thread. Keys and values are `u64`, or belong to one thread, so variance does not matter.

use foldhash::fast::FixedState;
use relativist_baselines::ddds::Ddds;
use relativist_baselines::dual_chain::DualChain;
use relativist_baselines::fixed::Fixed;
use relativist_baselines::flat::Flat;
use relativist_baselines::key_move::KeyMove;
use relativist_baselines::sorted::Sorted;
use relativist_baselines::split_ordered::SplitOrdered;
use relativist_baselines::striped::Striped;
use relativist_baselines::unzip::Unzip;
use relativist_baselines::xkernel::{Const, Map};
use relativist_testing::auto_traits;

// The tables are made for measurements, and guarantee nothing after panics.
auto_traits! {
    Unzip<FixedState> => + + + -,
    Sorted<FixedState> => + + + -,
    Flat<FixedState> => + + + -,
    SplitOrdered<FixedState> => + + + -,
    DualChain<FixedState> => + + + -,
    Ddds<FixedState> => + + + -,
    Fixed<FixedState> => + + + -,
    KeyMove<FixedState> => + + + +,
    Striped<FixedState> => + + + -,
    // Remembers what it found last, in a `Cell`.
    Map<Const<8>> => + - + -,
}
