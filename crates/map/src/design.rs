//! The design: how lookups can be wait-free while the table is resized under them. (Documentation only.)
//!
//! # Order
//!
//! A table of 2^k buckets takes the bucket from the k high bits of the (mixed) hash, and keeps each chain sorted by hash. So
//! the buckets, one after the other, are *all entries in the order of their hashes*, and a bucket is a range of them,
//! whatever the size of the table. Shrinking joins ranges that are neighbours, growing parts them, and nothing has to be
//! reordered. A lookup stops at the first larger hash, so it doesn't matter to it whether its chain ends with its bucket or runs on
//! into the next (ATC 2011, section 4, calls such chains imprecise).
//!
//! The authors sketched this in section 4.3 of their paper; the version that they published keeps chains unsorted, and
//! unzips them with a wait for readers per pass.
//!
//! # Head words
//!
//! A bucket's head is one word: pointer, lock, state, and a *summary*: for the next four bits of the hash after the bucket's
//! own, which of the 16 values occur in the chain. At half an entry per bucket that answers 31 of 32 misses without touching an
//! entry.
//!
//! # Resizing
//!
//! A coarse bucket and the fine buckets that it covers form a *group*. During a resize, a group has one merged chain, of which
//! the coarse head and the fine heads are all entries:
//!
//! ```text
//!   coarse array    [ C ]
//!                     |
//!   merged chain      +--> 1 --> 3 --> 4 --> 6 --> 7
//!                          ^           ^     ^
//!   fine array           [ F0 ] [ F1 ][ F2 ][ F3 ]        (F1 is empty)
//! ```
//!
//! *Grow:* give each group of the coarse array its fine heads; publish the fine array. *Cut* the chains between fine buckets when
//! the readers from before have left. A lookup that came by a fine head never looks beyond its own fine bucket, so cuts don't
//! concern it; those that came by a coarse head have left.
//!
//! *Shrink:* join the chains of each group; publish the coarse array. A lookup that came by a fine head finds its bucket's entries
//! where they always were.
//!
//! Neither waits for readers: only the cut does, and a table may grow again before it. The next array is filled with entries into
//! the same merged chains, the wait begins anew, and one cut serves all growths since the last:
//!
//! ```text
//!   base array      [ C                          ]     has the locks
//!   merged chain      +--> 1 --> 3 --> 4 --> 6 --> 7
//!   replaced array  [ F0          ][ F1          ]     freed when its readers have left
//!   published       [ G0 ][ G1   ][ G2 ][ G3     ]     kept right by updates
//!   being filled    [    ]..                           kept right where it is filled
//! ```
//!
//! So a thread that fills a map under one handle, or a reader that sleeps in its section, holds up cuts and the reclamation of
//! arrays, but no growth. Until chains are cut, updates take the locks of the base array, of which there are fewer, and link
//! behind entries of other buckets: they take up to twice as long. Lookups notice nothing. Shrinking may wait: the background
//! worker begins it when nothing of the last resize is left. So what readers hold up is at most one growth's arrays, which get
//! smaller by a factor each.
//!
//! # Updates during a resize
//!
//! An update locks the head of its bucket, unless that *follows* a head of the base array: then the base head is the lock of the
//! whole group. The mark and the lock are in one word, so a head that follows can't be locked: there is no moment at which two
//! updates hold different locks for the same chain.
//!
//! | what the update finds | what it does |
//! |---|---|
//! | a head that does not follow | locks it: the chain is its own; if the head has finer ones, keeps these right, too |
//! | a head that follows | locks the base head, looks whether the head still follows, and keeps right what is published |
//! | a head of a group that was cut | looks again: a finer array is published |
//!
//! What an update has found may be from the last resize or the one before, since no resize waits for updates to leave. That is
//! why it looks again when it has the lock. Arrays stay allocated as long as any update can know them.
//!
//! Arrays older than the published one are not kept right. Lookups that entered by one began before the newer array was
//! published, so they overlap with the update and may count as having come before it. They still find every entry that stays in
//! the table: a removed entry goes on leading to those that came after it at that time, which lead on in turn.
//!
//! # Renaming
//!
//! To rename an entry is to change two places at once: out of the chain of the old key, into that of the new one. That can't be one
//! store. So a third place decides, the *hand* (`raw/hand.rs`): a lookup that has come to the end of its chain in vain looks whether
//! some rename has in hand what it is looking for. Hits never look there, nor do misses that the head's summary answers.
//!
//! ```text
//!   hand:    empty | before: the old key is answered | after: the new key is | again: walk once more | empty
//!   chains:    old : unlink old .. wait for readers  :  .. link new ..       :  wait for readers     :
//! ```
//!
//! *Before* is entered while the link is still in its chain, *after* when it is in none, *again* when it is in the new one. So at every
//! instant one of chain and hand answers, for exactly one of the keys, and the entry changes its name by the store in the midst.
//!
//! * Lookups get as far as the hand only if the summaries send them there: that of the new hash is set before *after*, that of the old
//!   one is not cleared before. While anything is in hand, removals leave summaries as they are.
//! * In *again* the hand has no answer: the link may be removed or replaced by now. Who has missed walks a second time, and what that
//!   finds counts. Once is enough, because the next rename waits for this reader.
//! * The first wait is there because the link is not copied: who stands on it must get to the end of the old chain. A link
//!   that takes another one's place needs no such wait.
//! * The second wait is for those who looked into the new chain too early: only when they have left, *again* may end.
//! * No lock is held during the waits, since a reader may be waiting for it. Between the two, an update of the old key finds
//!   the link in hand, and may replace or remove it there.
//! * If the new key turns out to be taken, or something panics, the link goes back to where it was: *before*, *again*, *empty*.
//!
//! Renames hold the mutex of the resizer, and have chains cut first. There is one at a time, then, and no resize meanwhile:
//! neither has to know of the other's intermediate states, and a lookup has only one hand to look at.
//!
//! # Sparse tables
//!
//! Iteration goes from bucket to bucket, and most of them may be empty. Iterations over a sparse table therefore leave a
//! bitmap of the buckets that may have links, for those that come after (Mosberger, "Map Library Design Notes", 1996, section
//! 2.4). It is installed empty, filled when a grace period has passed, because all updates know of it then and keep it up, and
//! never cleared, but thrown away when it has become stale. Dense tables have none, and lookups never look at it; see
//! `raw/occupancy.rs`.
//!
//! # Types
//!
//! What other threads may have, and how types vary with those of keys and values.
//! `tests/suite/auto_traits.rs` checks the first, doctests that must not compile the second
//! (`variance.rs`). Maps are filled with `Send + Sync + 'static` keys and values only: those that
//! are removed are dropped later, on any thread.
//!
//! | type | `Send` if | `Sync` if | variance in keys and values |
//! |---|---|---|---|
//! | [`HashMap`](crate::HashMap), [`HashSet`](crate::HashSet), [`IntoIter`](crate::IntoIter) | keys and values are `Send + Sync`, the hasher `Send` | they are `Send + Sync`, the hasher `Sync` | invariant: `insert` takes `&self` |
//! | [`Pinned`](crate::Pinned), [`PinnedSet`](crate::PinnedSet), [`Cached`](crate::Cached), [`ExtractIf`](crate::ExtractIf), [`Drain`](crate::Drain) | never: the guard is its thread's | never | invariant: they have the map |
//! | [`Iter`](crate::Iter), [`Keys`](crate::Keys), [`Values`](crate::Values) | never | never | covariant: they only hand out |
//! | `ParIter` | keys and values are `Sync`: threads enter sections of their own | the same | covariant |
//! | errors, [`Change`](crate::Change), [`Builder`](crate::Builder) | what is in them is | what is in them is | covariant |
//! | [`raw::Table`](crate::raw::Table), [`raw::Link`](crate::raw::Link) | always: who inserts vouches for the objects | always | |
//! | [`raw::Entry`](crate::raw::Entry), [`raw::Iter`](crate::raw::Iter), [`raw::FindAll`](crate::raw::FindAll) | never: locks and guards are their thread's | never | |
//!
//! All are `UnwindSafe` and `RefUnwindSafe` if keys, values and hasher are (T9).
//!
//! A reference to a key or a value lives no longer than the guard and the map. The guard keeps
//! alive what is removed, the map what is not. Nothing relies on a destructor that a handle, an
//! iterator or a guard has: leaking a [`Drain`](crate::Drain) leaves entries in the map, leaking a
//! guard keeps its section open. Nor on `Hash`, `Eq` and `Equivalent` to tell the truth: entries
//! may be missed then, and be there twice. A `raw::Entry` that is leaked keeps its bucket locked.
//!
//! # Guarantees
//!
//! * **T1** A lookup finds every entry that is in the table throughout the call, whatever updates and resizes happen meanwhile.
//! * **T2** Lookups are wait-free: they never wait and never retry, and the number of steps is
//!   bounded by the length of the chain, plus the links that other threads insert ahead of it while
//!   it walks. It passes those whose hash is at most the one it looks for. (During a rename, those
//!   that miss may walk the chain twice.)
//! * **T3** Operations on a key are linearizable. (During a resize an update changes the newest array first, see
//!   `raw/group.rs`: a lookup that came by an older one began before the newer was published, and may count as having come before.) That
//!   includes real time: when an update has returned, every lookup that begins finds it done, as unlocking is a full barrier.
//! * **T4** An update waits for updates of its bucket or group, and for the resizer's and a rename's steps on it: never for
//!   readers, but for the bound on deferred work. A step of the resizer covers the chain of one bucket, or at most 64 heads with
//!   their chains, whatever the sizes. (A rename waits for readers, and for other renames and resizes by hand.)
//! * **T5** Neither growing nor shrinking by any power of two waits for readers before lookups profit from it. A growth's chains
//!   are cut after one grace period, which several growths may share. So no reader, however long it stays, delays the growth of
//!   any automatic map. An array left behind is freed after a grace period. (A resize by hand returns when all chains are cut.)
//! * **T6** If the new array can't be allocated, the table goes on with the old one.
//! * **T7** Iteration sees an entry that is there throughout exactly once, and none twice that was not removed and inserted again.
//!   So do the calls of a scan, taken together. (An entry that is renamed meanwhile comes or goes: it may be seen or not. One that
//!   was replaced by the rename may be seen under both keys.)
//! * **T8** What is found stays valid and unchanged as long as the guard. Objects are never moved or copied.
//! * **T9** A panic in a key's `Eq` or `Hash`, in a destructor or in a closure leaves no lock held,
//!   each entry as before the operation or as after it, and nothing leaked. If `Eq`,
//!   which runs under a bucket's lock, updates the map that asked, then it panics, too, instead of
//!   waiting for itself. A panic in a destructor that the background resizer happens to run doesn't
//!   end the resizer. A wait for readers that fails aborts the process, so no panic leaves a table
//!   halfway through a transition.
//!
//! * **T10** At every instant an entry that is being renamed is found under exactly one of its two keys. Within a read section at
//!   most one rename of the table takes effect: of three lookups, of the one key, the other, and the one again, one at least finds the
//!   entry, and one at least doesn't.
//!
//! The resize and the rename are model-checked: the algorithms in Promela (`proofs/`), the code with loom and shuttle; so is
//! iteration, with loom. Each of their waits, marks, locks and publications can be left out by a test-only switch, and some test then
//! fails (`ci/mutation.sh`).
