//! The design: how lookups can be wait-free while the table is resized. (Documentation only.)
//!
//! # Order
//!
//! A table of 2^k buckets takes the bucket from the k high bits of the (mixed) hash, and keeps each
//! chain sorted by hash. So the buckets in sequence contain *all entries in the order of their
//! hashes*, and a bucket is a range of hashes, whatever the size of the table. Shrinking joins
//! neighbouring ranges, growing splits them, and nothing is reordered. A lookup stops at the first
//! larger hash. So it finds the same entries whether its chain ends with its bucket or continues
//! into the next one (ATC 2011, section 4, calls such chains imprecise).
//!
//! The authors sketched this in section 4.3 of their paper. The algorithm that they published keeps
//! chains unsorted, and unzips them with a wait for readers per pass.
//!
//! # Head words
//!
//! A bucket's head is one word: pointer, lock, state, and a *summary*. The summary says which of
//! the 16 values of the next four hash bits, after those of the bucket, occur in the chain. At half
//! an entry per bucket it answers 31 of 32 misses without touching an entry. If it shows that a new
//! link comes first, an insertion needs no look at the others.
//!
//! # Resizing
//!
//! A coarse bucket and the fine buckets that it covers form a *group*. During a resize, a group has
//! one merged chain, which lookups may enter by the coarse head or by a fine one:
//!
//! ```text
//!   coarse array    [ C ]
//!                     |
//!   merged chain      +--> 1 --> 3 --> 4 --> 6 --> 7
//!                          ^           ^     ^
//!   fine array           [ F0 ] [ F1 ][ F2 ][ F3 ]        (F1 is empty)
//! ```
//!
//! *Grow:* fill the fine heads of each group; publish the fine array. *Cut* the chains between fine
//! buckets when the readers from before have left. A lookup that entered by a fine head needs no
//! link between two fine buckets, so cuts do not affect it. Lookups that entered by a coarse head
//! have left.
//!
//! *Shrink:* join the chains of each group; publish the coarse array. A lookup that entered by a
//! fine head finds its bucket's entries where they were before.
//!
//! Only the cut has to come after a grace period, and a table may grow again before the cut. Then
//! the next array is filled with heads that lead into the same merged chains, a new grace period
//! begins, and one cut serves all growths since the last one:
//!
//! ```text
//!   base array      [ C                          ]     has the locks
//!   merged chain      +--> 1 --> 3 --> 4 --> 6 --> 7
//!   replaced array  [ F0          ][ F1          ]     freed when its readers have left
//!   published       [ G0 ][ G1   ][ G2 ][ G3     ]     maintained by updates
//!   being filled    [    ]..                           maintained where it is filled already
//! ```
//!
//! So a thread that fills a map under one handle, or a reader that sleeps in its section, delays
//! cuts and the reclamation of arrays, but no growth. Until the cut, a lookup that reaches the end
//! of its bucket looks at one more link, and summaries are less exact, so more misses walk their
//! chains. Updates search merged chains. They look for a link near their place along the chain from
//! its start and in the heads before their bucket, by turns. In a group of n heads that takes about
//! sqrt(n / 16) steps at most; most updates take two to three times as long as at rest, and up to
//! ten times in a table that has become sparse. They share the locks of the base array, which may
//! be few: updates by several threads then wait for each other.
//!
//! Shrinking may be delayed: the background worker shrinks a table when its chains are cut and all
//! arrays of earlier resizes are freed. This bounds the arrays that readers keep from being freed:
//! that of one shrink, and those of growths, each at most half as large as the next.
//!
//! # Updates during a resize
//!
//! An update locks the head of its bucket, unless that head *follows* a head of the base array:
//! then the base head is the lock of the whole group. One bit of the head's word is the lock,
//! another says that the head follows. A head that follows can't be locked. So two updates never
//! hold different locks for the same chain.
//!
//! | what the update finds | what it does |
//! |---|---|
//! | a head that does not follow | locks it; if finer heads are filled, maintains these as well |
//! | a head that follows | locks the base head; checks that the head still follows, or else starts again; maintains the finer heads that are in use or filled already |
//! | a head of a group that was cut | starts again: a finer array is published |
//!
//! No resize waits for updates to leave, so an update may have read the state of an earlier resize.
//! Therefore it checks again under the lock. Arrays stay allocated as long as an update may use
//! them, because updates run in read sections.
//!
//! Updates do not maintain arrays that are older than the published one. A lookup that entered by
//! such an array began before the newer one was published. So it overlaps with the update, and may
//! count as having come before it. It still finds every entry that stays in the table: a removed
//! entry still leads to the entry that came after it at that time, and so on.
//!
//! # Types
//!
//! | type | `Send` | `Sync` |
//! |---|---|---|
//! | [`Table`](crate::Table), [`Link`](crate::Link), [`CompactLink`](crate::CompactLink) | always: the caller of `insert` answers for the objects | always |
//! | [`Entry`](crate::Entry), [`Iter`](crate::Iter), [`FindAll`](crate::FindAll) | never: locks and guards are their thread's | never |
//!
//! All are `UnwindSafe` and `RefUnwindSafe` (T9).
//!
//! A link that was found is alive as long as the guard. Memory safety does not rely on the
//! destructors of entries, iterators and guards: a leaked entry keeps its bucket locked, and a
//! leaked guard keeps its section open. Nor does it rely on correct comparisons: if they are wrong,
//! lookups may miss links, and a key may be in the table twice. The maps of `relativist` rely on
//! this; their own types are in the design of that crate.
//!
//! # Guarantees
//!
//! * **T1** A lookup finds every entry that is in the table throughout the call, whatever updates
//!   and resizes happen during the call.
//! * **T2** Lookups are wait-free: they never wait and never retry. A lookup passes links whose
//!   hash is at most its own. Their number is bounded by the length of the chain, plus the links
//!   that other threads insert ahead of the lookup while it walks.
//! * **T3** Operations on a key are linearizable. That includes real time: an update unlocks by a
//!   full barrier before it returns, so a lookup that begins later sees the update. (During a
//!   resize an update changes the newest array first, see `group.rs`.)
//! * **T4** An update waits for updates of its bucket or group, and for a step of the resizer on
//!   it. It never waits for readers, except by the bound on deferred work. A step of the resizer
//!   covers the chain of one bucket, or at most 64 heads with their chains, whatever the sizes.
//! * **T5** Neither growing nor shrinking by any power of two waits for readers before lookups use
//!   the new array. Chains are cut after one grace period, which several growths may share. So no
//!   reader, however long it stays, delays the automatic growth of any map. Nor does a background
//!   worker that is busy or blocked: insertions grow a table that has become four times too small,
//!   each by a bounded number of heads, and wait for no lock meanwhile. A replaced array is freed
//!   after a grace period. (A resize by hand begins and returns with all chains cut. While it waits
//!   for readers, the automatic growth of the same table waits, too.)
//! * **T6** If the new array cannot be allocated, the table keeps the old one.
//! * **T7** Iteration sees an entry that is in the table throughout exactly once. It sees no entry
//!   twice that was not removed and inserted again. The same holds for the calls of one scan, taken
//!   together.
//! * **T8** A reference that was found stays valid and unchanged as long as the guard. Objects are
//!   never moved or copied.
//! * **T9** A panic in a key's `Eq` or `Hash`, in a destructor or in a closure leaves no lock held,
//!   each entry as before the operation or as after it, and nothing leaked. If `Eq`, which runs
//!   under a bucket's lock, updates the map that called it, the update panics instead of waiting
//!   for itself. A panic in a destructor that runs on the background resizer's thread does not end
//!   the resizer. A wait for readers that fails aborts the process, so no panic leaves a table
//!   halfway through a resize.
//!
//! (T10, the move of an entry to another key, is in `relativist-papers`.)
//!
//! The resize is model-checked: the algorithm in Promela (`proofs/`), the code with loom. Iteration
//! is checked with loom. For each of their waits, marks, locks and publications, `ci/mutation.sh`
//! builds a copy of the code that leaves it out, and checks that a test fails.
