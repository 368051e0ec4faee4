//! The design: what the table guarantees, and how its parts work together. (Documentation only.)
//!
//! # Layout
//!
//! A bucket is a range of hashes, by their high bits. It has a word and a group of slots; words and
//! groups lie side by side in one array (`array.rs`). So a lookup computes both addresses from the
//! hash, and the processor loads both at the same time. The word has seven bits of the hash of each
//! live slot (`word.rs`). Most lookups of an absent key end there.
//!
//! A bucket that has more entries than slots continues in *later segments*, one behind the other.
//! The first word says in a *filter* which classes of tags they may have.
//!
//! # The two kinds of slots
//!
//! | | boxed | inline |
//! |---|---|---|
//! | forms | [`Boxed`](crate::Boxed), [`Private`](crate::Private) | [`Inline`](crate::Inline) |
//! | a slot holds | a pointer to the entry, and 16 bits of its hash | the entry |
//! | an entry is in the table while | a pointer leads to it | its tag is set |
//! | a removed entry | is dropped after a grace period | stays in its slot; a copy is dropped |
//! | its slot can be used again | at once | after two grace periods |
//! | a replacement | exchanges the pointer | uses another slot |
//! | a removal | takes the lock | takes no lock in a first segment |
//! | to grow, the table | reads slots | calls `Hash`, outside of locks |
//!
//! `update.rs` has the order of the steps, and why lookups need it.
//!
//! # Lookups and updates
//!
//! A lookup loads the word of its bucket once. If the word has the mark that the bucket has moved,
//! the lookup goes on in the next array. Otherwise it compares the entries with its tag, and reads
//! later segments if the filter has its bit. It stores nothing, and never begins again.
//!
//! An update compares keys before it locks the bucket. Under the lock it looks at all slots with
//! the tag again, but calls no `Eq`: it knows the entries that it has compared by their addresses,
//! which are not used again as long as its read section lasts. If it finds another entry, it
//! unlocks the bucket and compares that one (`table.rs`). The word alone would not show this: a tag
//! can leave a slot and return with another key, and an entry can come into a later segment.
//!
//! # Resizing
//!
//! `resize.rs` says how a resize goes on, who does the work, and when the next one may begin. Three
//! things make it safe for lookups:
//!
//! * A new bucket is complete before the mark leads anyone to it. The mark, the tags and the filter
//!   are one word, so one load shows all three.
//! * A bucket that has moved does not change any more, except in the next array. A lookup that has
//!   loaded its old word finds the entries of that time, and overlaps with all later updates.
//! * The old array stays allocated until the readers have left that may have loaded it.
//!
//! Inline entries may have locks of their own ([`Keys`](crate::Keys)). Whoever holds one may change
//! the entry, and leaves its read section, so the entry must stay where it is. A thread that moves
//! a bucket first closes all its entries: it takes their locks, without waiting. If one is locked,
//! it opens the others again, and the bucket stays for now.
//!
//! # Clearing
//!
//! `clear` publishes an empty array in one step. An update that has loaded the old array may go on
//! there: it began before the clear, and counts as having come before it (`contents.rs`). A resize
//! that is in progress cannot bring entries back, because both it and the clear exchange the
//! pointer to the array that they have loaded, and only one of them succeeds.
//!
//! # Iteration
//!
//! An iteration passes the buckets of the array that was current at its start. A bucket of one
//! segment is one load of its word. A bucket of several inline segments is read twice, and taken if
//! it was unlocked and nothing has changed. After a few attempts the iteration compares keys
//! instead. If the bucket has moved, the iteration looks into the next array for the entries of
//! this bucket only (`iter.rs`).
//!
//! # Types
//!
//! | type | `Send` and `Sync` | it holds |
//! |---|---|---|
//! | [`Table`](crate::Table) | if its entries are both | entries, arrays, perhaps a domain |
//! | [`Section`](crate::Section) | like the guard in it | a read section |
//! | [`Iter`](crate::Iter) | like its references | references to keys and entries |
//! | [`IntoEntries`](crate::IntoEntries) | like its entries | entries of a table that is gone |
//!
//! Which entries a form may have is the trait [`Holds`](crate::Holds). Entries of the process's
//! domain may be dropped on any thread at any time, so they are `'static`. Those of a private
//! domain are dropped by threads that use the table, or with it. Inline entries are copied while
//! other threads read them, so they are [`Relocatable`](crate::Relocatable).
//!
//! Memory safety relies neither on correct comparisons nor on hashes that stay the same. If these
//! are wrong, lookups may miss entries, and a key may be in the table twice. Nor does it rely on
//! destructors: a leaked section stays open, and nothing is freed that it may reach.
//!
//! # Guarantees
//!
//! * **B1** A lookup finds every entry whose key is in the table throughout the call, whatever
//!   updates and resizes happen meanwhile.
//! * **B2** Lookups are wait-free: they never wait and never retry. A lookup passes one array, and
//!   one more for each resize that was in progress when it began or has begun since. In its bucket
//!   it passes each segment once.
//! * **B3** Operations on a key are linearizable. That includes real time: an update executes a
//!   full barrier before it returns, so a lookup that begins later on any thread sees the update.
//! * **B4** An update waits only for a thread that holds the lock of its bucket. Such a thread runs
//!   a bounded number of steps, does not wait for readers, and wakes the threads that wait. A
//!   thread that moves buckets may hold the locks of eight, in ascending order, and waits for each
//!   of them.
//! * **B5** A growth waits for no reader and needs no background thread: the threads that insert
//!   and remove move the buckets. A `Hash` that blocks stops only its own thread. A resize that
//!   cannot end delays none of another table. A shrink begins only when earlier arrays are freed,
//!   so one reader does not make a table collect arrays.
//! * **B6** No user code runs under the lock of a bucket: not `Hash`, `Eq`, closures or
//!   destructors. (A global allocator does.)
//! * **B7** Iteration sees an entry that is in the table throughout exactly once, also while it is
//!   moved. It sees a key that is not removed meanwhile at most once.
//! * **B8** A reference that was found stays valid and unchanged as long as the section. Memory is
//!   reused, and entries are dropped, when all sections have ended that may have found them.
//! * **B9** A panic in user code leaves no lock held, each entry as before the operation or as
//!   after it, and nothing leaked. If `Hash` panics while a bucket is moved, the bucket stays where
//!   it is, and the panic does not reach the operation that has moved it.
//! * **B10** If there is no memory for a new array, the table keeps the old one. (For an entry or a
//!   later segment, the process aborts.)
//! * **B11** After a clear, no lookup that begins later finds an entry that was in the table before
//!   it. Each entry is dropped once. The number of entries is that of the new array, whatever
//!   updates still do in the old one.
//! * **B12** Entries of a table with a private domain are dropped after all sections of the domain
//!   that may have found them, by a thread that uses the table or by the one that drops it. A
//!   section of the domain delays nothing else, and no reader of the process delays the table. If a
//!   section or the table is leaked, nothing is dropped early.
//! * **B13** An inline entry that is locked stays at its address. No thread waits for it in order
//!   to move it. What a thread has changed under the lock is in the copy.
//!
//! `tests/loom` has models of these, and `tests/mutations.txt` names a test that fails for each
//! step that can be left out or done in another order.
