/* The bucket table with entries in its slots (crates/bucket): lookups and updates during resizes
 * and a clear. boxed.pml is about slots that hold pointers; what both kinds share is checked there more
 * closely. Each access to shared memory is a step of its own, except that an update's search is one
 * step, with and without the lock. Memory is sequentially consistent.
 *
 * A bucket is a first segment in the array, and a list of later ones outside of it. A segment has
 * slots, and a word with a tag per slot. The first word also has the flags LOCKED and MOVED, and a
 * filter: the classes of tags that later segments may have. It is 0 exactly if there is no later
 * segment.
 *
 * The tag is the truth: an entry is in the table exactly while a word shows it.
 *
 *   Lookup:  load the array's pointer, then the first word. If the bucket has moved, go on in the
 *            next array. Compare keys in the slots with the key's tag. If the filter had a bit for
 *            the key, do the same in the later segments.
 *   Update:  search without a lock, and note the slots that were compared. Lock the bucket. Look at
 *            the slots with the key's tag again. Is there one that was not compared? Then unlock,
 *            compare it, and lock again.
 *   Insert:  write the entry into the first usable slot in the order of the walk, and show it. In a
 *            later segment: set the filter's bit before. A new segment is the last one, and is
 *            linked empty.
 *   Replace: write the new entry into a usable slot of the old one's segment. One store of the word
 *            shows the new one and hides the old one. Has the segment no usable slot? Then copy the
 *            old entry to a segment further back with two usable slots, show the copy, hide the
 *            original, and replace the copy.
 *   Remove:  from the first segment by one compare-exchange of the word, without the lock. From a
 *            later one under the lock: hide the entry, then clear the filter's bit unless another
 *            entry needs it. An empty later segment is unlinked, and keeps its link.
 *   Reuse:   the tag of a slot that is vacated becomes the number of the latest grace period that
 *            has begun, modulo MODULUS. The thread loads the number after it has entered its read
 *            section. When the second grace period after that has ended, the slot is usable: the
 *            first one waits for the update, the second for readers from before it. Numbers that
 *            seem to be ahead of the one that has ended are young.
 *   Resize:  hash the keys of the buckets that become one, without a lock. Lock these buckets. Are
 *            other slots live than before? Then unlock, and begin again. Copy the entries, and set
 *            MOVED, which unlocks. (Here a shrink may begin at once: see SHRINK_AT_ONCE in
 *            boxed.pml.)
 *   Clear:   publish an empty array. After a grace period, drop the entries of the replaced array
 *            and of its successor.
 *
 * Keys: A and C have the same tag, and the same bucket in each array. B has another tag, and in
 * arrays of two buckets the other bucket. No updater touches B.
 *
 *   -DBITS0=n, -DBITS1=n, -DBITS2=n
 *                 the arrays have 2^n buckets, at most 2; equal numbers are a growth, too
 *   -DRESIZES=n   the resizes; -DMOVERS=n threads do them
 *   -DFIRST=n     the slots of a first segment
 *   -DOPS=n       the updates of A by the first updater
 *   -DOPSC=n      the updates of A or C by the second updater
 *   -DC0          C is in a later segment at the start
 *   -DTURNS=n     the lookups
 *   -DKEPT        the reader stays in one section for all of its lookups
 *   -DGRACES=n    the number of grace periods
 *   -DEMPTY       a thread clears the table
 *
 * Checked:
 *   - A lookup returns a value that its key had at some instant of the lookup.
 *   - An update returns the entry that it replaces.
 *   - A lookup hops once, and once more for each resize that began during it.
 *   - No slot is written while a thread may read it.
 *   - No thread accesses an array or a segment that was freed.
 *   - The filter of an unlocked bucket is 0 exactly if there is no later segment.
 *   - At the end each entry is in the table, or was dropped, once.
 *
 * Each of these switches leaves out or misplaces one step, and in a run of runs.txt a check fails:
 *
 *   NORECHECK       an update locks by a compare-exchange from the word that its search has seen,
 *                   and does not look again
 *   REUSE_AT_ONCE   a slot is usable as soon as its entry is hidden
 *   REUSE_EARLY     a slot is usable after the first grace period
 *   REUSE_AHEAD     a slot is usable whose number is ahead of the one that has ended
 *   STALE_STAMP     an update uses the number that it has read before it entered its section
 *   EARLIER         an entry may be replaced by one in an earlier segment
 *   REPLACE_ACROSS  an entry is replaced by one in a later segment: a lookup may return the new
 *                   value, and the next one the old value
 *   REMOVE_FIRST    an entry is hidden before its copy further back is shown
 *   REMOVE_LOCKED   a removal from the first segment does not fail if the bucket is locked
 *   FILTER_LAST     an insertion shows the entry before it sets the filter's bit
 *   FILTER_CLEARED  a removal clears the filter's bit although another entry needs it
 *   LINK_FULL       a new segment that shows the entry is linked before the filter's bit is set
 *   FREE_SEGMENT    a segment is freed as soon as it is unlinked
 *   CUT_LINK        a segment that is unlinked loses its link
 *   KEEP_EMPTY      a segment stays when its last entry was moved back
 *   MOVE_UNLOCKED   a resize does not lock the bucket that it moves
 *   MERGE_UNLOCKED  buckets that become one are moved one after the other
 *   UNCHECKED       a resize does not check that the bucket is as it was when keys were hashed
 *   UNCHECKED_LINK  a resize checks the words only, not in which segments they are
 *   DROP_MOVED      a clear drops the entries of moved buckets, too
 */
#ifndef BITS0
#define BITS0 0
#endif
#ifndef BITS1
#define BITS1 1
#endif
#ifndef BITS2
#define BITS2 0
#endif
#ifndef RESIZES
#define RESIZES 0
#endif
#ifndef MOVERS
#define MOVERS 1
#endif
#ifndef FIRST
#define FIRST 1
#endif
#ifndef OPS
#define OPS 1
#endif
#ifndef OPSC
#define OPSC 1
#endif
#ifndef TURNS
#define TURNS 1
#endif
#ifndef GRACES
#define GRACES 0
#endif
#ifdef EMPTY
#define ARRAYS (RESIZES + 2)
#else
#define ARRAYS (RESIZES + 1)
#endif

#define NULL 0
#define NONE 255
#define A 1
#define C 2
#define B 3
#define TAG(k) (k == B -> 2 : 1)

/* Entries: 1 is B; 2 is C at the start; the others belong to an update each. */
#define ENTRIES (3 + OPS + OPSC)
#define BIT(x) (1 << (x))
byte key[ENTRIES];

#define BUCKETS (ARRAYS * 2)
#define LATER 2                        /* the slots of a later segment */
#define POOL 5                         /* later segments; none is used twice */
#define SLOTS (BUCKETS * FIRST + POOL * LATER)
#define BITS(g) (g == 0 -> BITS0 : (g == 1 -> BITS1 : (g == 2 -> BITS2 : 0)))
#define BUCKET(g, k) (2 * (g) + (k == B -> BITS(g) : 0))
#define IN_FIRST(b) ((b) * FIRST)
#define IN_LATER(o) (BUCKETS * FIRST + (o) * LATER)
#define is_later(x) ((x) >= IN_LATER(0))
#define SEGMENT_OF(x) (((x) - IN_LATER(0)) / LATER)

/* Words: the key of each live slot (in the program: 7 bits of its hash), or else when it was
 * vacated, plus 1; 0 for never. */
byte live[SLOTS], stamp[SLOTS];
bool moved[BUCKETS], locked[BUCKETS];
byte filter[BUCKETS];                  /* the tags that later segments may have */
/* Slots, and links. */
byte entry_in[SLOTS];
byte link[BUCKETS], link_of[POOL];     /* the number of the next segment plus 1; 0 for none */
byte used;                             /* later segments that are in use or were */
/* Arrays. */
byte next[ARRAYS];                     /* 0 for none */
byte moves[ARRAYS];                    /* buckets that have moved */
byte current, arrays = 1;
byte resizes;

/* Grace periods: see crates/rcu/src/design.rs. */
#define READER 0
byte begun = 1, ended = 1;
#define THREADS 6
byte entered[THREADS];
byte inside;
/* Memory may be freed as soon as the threads have left that were inside when it was retired. */
#define ITEMS (POOL + ARRAYS)
#define SEGMENT(o) (o)
#define ARRAY(g) (POOL + (g))
bool retired[ITEMS];
byte awaited[ITEMS];
#define IS_FREE(x) (retired[x] && awaited[x] == 0)
inline retire(x) { assert(!retired[x]); retired[x] = 1; awaited[x] = inside }
inline retire_at_once(x) { assert(!retired[x]); retired[x] = 1 }
inline enter(t) { n = begun; atomic { entered[t] = n; inside = inside | BIT(t) } }
inline leave(t) {
  d_step {
    inside = inside & ~BIT(t);
    entered[t] = 0; pinned[t] = 0;
    i = 0;
    do :: i == ITEMS -> break :: else -> awaited[i] = awaited[i] & inside; i++ od;
    i = 0;
    drop_cleared()
  }
}
/* The slots that a thread reads or may read until it leaves its section. */
int pinned[THREADS];

/* A vacated slot may be written when two grace periods have ended since. */
#define MODULUS 6
#define AGE(x) ((ended + 2 * MODULUS - (stamp[x] - 1)) % MODULUS)
#ifdef REUSE_AT_ONCE
#define IS_USABLE(x) (live[x] == 0)
#else
#ifdef REUSE_EARLY
#define IS_USABLE(x) (live[x] == 0 && (stamp[x] == 0 || (AGE(x) >= 1 && AGE(x) < MODULUS - 2)))
#else
#ifdef REUSE_AHEAD
#define IS_USABLE(x) (live[x] == 0 && (stamp[x] == 0 || AGE(x) >= 2))
#else
#define IS_USABLE(x) (live[x] == 0 && (stamp[x] == 0 || (AGE(x) >= 2 && AGE(x) < MODULUS - 2)))
#endif
#endif
#endif
inline fill(x, e) {
  atomic {
    assert(live[x] == 0 && !((pinned[0] | pinned[1] | pinned[2] | pinned[3] | pinned[4]) & BIT(x)));
    entry_in[x] = e
  }
}
inline vacate(x) { live[x] = 0; stamp[x] = 1 + n % MODULUS }

/* The history. A clear begins a new line of arrays. What updates of the replaced line do counts as
 * having happened at the instant of the clear. */
byte line[ARRAYS], current_line;
byte present[8];                       /* the entry of each key, for each line */
#define PRESENT(g, k) present[line[g] * 4 + (k)]
bool dropped[ENTRIES];
inline drop(e) { assert(!dropped[e]); dropped[e] = 1 }
int seen;                              /* the entries of A during the lookup */
bool looking, spans_clear;
/* An update takes effect when a step says so, or when a lookup has returned its result before. */
byte pending = NONE;
#define COUNTS(g, k) (k == A && (line[g] == current_line || spans_clear))
inline may_happen(g, k, e) { if :: COUNTS(g, k) -> pending = e; seen = seen | BIT(e) :: else fi }
inline happens(g, k, e) {
  PRESENT(g, k) = e;
  if :: COUNTS(g, k) -> pending = NONE; seen = seen | BIT(e) :: else fi
}
#define SEEN_AT_FIRST (BIT(PRESENT(current, A)) | (pending == NONE -> 0 : BIT(pending)))
/* Checks what a lookup has returned. */
inline check_found() {
  if
  :: k == B -> assert(found -> line_before == 0 : current_line == 1)
  :: else ->
     assert(seen & BIT(found));
     if :: found == pending -> PRESENT(current, A) = found; pending = NONE :: else fi
  fi;
  looking = 0; spans_clear = 0; seen = 0
}

/* Does `visit` for each slot i of a bucket. */
#define each_slot(b, visit) \
  i = IN_FIRST(b); \
  do :: i == IN_FIRST(b) + FIRST -> break :: else -> visit; i++ od; \
  o = link[b]; \
  do \
  :: o == 0 -> break \
  :: else -> \
     i = IN_LATER(o - 1); \
     do :: i == IN_LATER(o) -> break :: else -> visit; i++ od; \
     o = link_of[o - 1] \
  od; \
  i = 0

/* The end of a clear: runs when the last thread has left that was inside then. */
byte cleared;                          /* the replaced array plus 1 */
byte cleared_awaited;
inline drop_cleared() {
#ifdef EMPTY
  cleared_awaited = cleared_awaited & inside;
  if
  :: cleared && cleared_awaited == 0 ->
     g = cleared - 1;
     cleared = 0;
     do
     :: b = 2 * g;
        do
        :: b > 2 * g + BITS(g) -> break
        :: else ->
#ifndef DROP_MOVED
           if :: !moved[b] -> drop_bucket() :: else fi;
#else
           drop_bucket();
#endif
           b++
        od;
        retire_at_once(ARRAY(g));
        if :: next[g] -> g = next[g] :: else -> break fi
     od;
     i = 0; b = 0; g = 0; o = 0
  :: else
  fi
#else
  skip
#endif
}
inline drop_slot() { if :: live[i] -> drop(entry_in[i]) :: else fi }
inline drop_bucket() { each_slot(b, drop_slot()) }

inline check_array(g) { assert(!IS_FREE(ARRAY(g))) }

#define HAS_TAG(x, k) (live[x] && TAG(live[x]) == TAG(k))
inline compare() {
  if :: HAS_TAG(i, k) -> pinned[t] = pinned[t] | BIT(i) :: else fi;
  if :: live[i] == k -> old = i :: else fi
}

/* Looks at one segment under the lock. Afterwards `new` is the slot for the new entry, or NONE if
 * that needs a new segment; and `copy` is the slot for a copy of the old entry, or NONE. */
inline look_in(from, slots) {
  free1 = NONE; free2 = NONE; here = 0;
  i = from;
  do
  :: i == from + slots -> break
  :: else ->
     if
     :: HAS_TAG(i, k) && !(pinned[t] & BIT(i)) -> unknown = 1; pinned[t] = pinned[t] | BIT(i)
     :: else
     fi;
     if :: live[i] == k -> old = i; here = 1 :: else fi;
     if
     :: IS_USABLE(i) && free1 == NONE -> free1 = i
     :: IS_USABLE(i) && free1 != NONE && free2 == NONE -> free2 = i
     :: else
     fi;
     i++
  od;
  if
#ifdef EARLIER
  :: here && new == NONE -> new = free1
#else
  :: here -> new = free1
#endif
  :: !here && old == NONE && new == NONE -> new = free1
  :: !here && old != NONE && new == NONE && free2 != NONE -> copy = free1; new = free2
  :: else
  fi
}
inline look() {
  old = NONE; new = NONE; copy = NONE; unknown = 0;
  look_in(IN_FIRST(b), FIRST);
  last = 0;
  o = link[b];
  do
  :: o == 0 -> break
  :: else -> look_in(IN_LATER(o - 1), LATER); last = o; o = link_of[o - 1]
  od;
  i = 0; free1 = 0; free2 = 0; here = 0
}

/* The first word, in which A and C look the same. */
inline first_word(w) {
  w = 0;
  i = IN_FIRST(b);
  do
  :: i == IN_FIRST(b) + FIRST -> break
  :: else -> w = w * 16 + (live[i] -> 10 + TAG(live[i]) : stamp[i]); i++
  od;
  w = w * 4 + filter[b];
  i = 0
}

#ifdef REMOVE_LOCKED
#define CAN_TAKE_OUT (live[old] == k && !moved[b])
#else
#define CAN_TAKE_OUT (live[old] == k && !moved[b] && !locked[b])
#endif
/* Makes `entry` the entry of k, or removes the entry of k if `entry` is null. */
inline update(k, entry) {
  enter(t);
  g = current;
search:
  atomic {
    check_array(g);
    b = BUCKET(g, k);
    old = NONE;
    if
    :: moved[b] -> g = next[g]; goto search
    :: else -> each_slot(b, compare())
    fi;
#ifdef NORECHECK
    first_word(word);
#endif
  };
  if
  :: !entry && old != NONE && !is_later(old) -> /* Remove it without the lock. */
#ifndef STALE_STAMP
     n = begun;
#endif
     if
     :: atomic { CAN_TAKE_OUT -> take_out(k) }; goto done
     :: atomic { !(CAN_TAKE_OUT) -> skip }
     fi
  :: else
  fi;
lock:
  atomic {
    check_array(g);
    b = BUCKET(g, k);
    if
    :: moved[b] -> g = next[g]; goto lock
    :: !moved[b] && !locked[b] ->
#ifdef NORECHECK
       first_word(was);
       if :: was != word -> goto search :: else fi;
#endif
       locked[b] = 1
    fi
  };
#ifndef STALE_STAMP
  n = begun;
#endif
  atomic {
#ifdef NORECHECK
    d_step { found = old; look(); unknown = 0; old = found; found = 0; word = 0; was = 0 }
#else
    d_step { look() }
#endif
    if
    :: unknown -> locked[b] = 0; goto lock
    :: else
    fi
  };
  if
  :: entry && old == NONE -> insert(k, entry)
  :: entry && old != NONE -> replace(k, entry)
  :: !entry && old != NONE && !is_later(old) -> atomic { take_out(k); locked[b] = 0 }
  :: !entry && old != NONE && is_later(old) -> remove_later(k)
  :: else -> atomic { assert(PRESENT(g, k) == NULL); locked[b] = 0 }
  fi;
done:
  atomic {
    leave(t);
    g = 0; b = 0; old = 0; new = 0; copy = 0; last = 0; unknown = 0; n = 0; o = 0
  }
}
inline take_out(k) {
  assert(PRESENT(g, k) == entry_in[old]);
  drop(entry_in[old]);
  vacate(old);
  happens(g, k, NULL)
}

/* Links a new segment behind the last one. It is empty. */
inline append() {
  atomic {
    assert(used < POOL);
    o = used; used++;
    if :: last == 0 -> link[b] = o + 1 :: else -> link_of[last - 1] = o + 1 fi
  }
}
inline insert(k, entry) {
  if
#ifdef LINK_FULL
  :: new == NONE ->
     atomic {
       new = IN_LATER(used); entry_in[new] = entry; live[new] = k;
       append();
       may_happen(g, k, entry)
     };
     atomic { filter[b] = filter[b] | TAG(k); happens(g, k, entry) };
     locked[b] = 0;
     goto done
#else
  :: new == NONE ->
     append();
     new = IN_LATER(o)
#endif
  :: else
  fi;
  fill(new, entry);
  if
  :: is_later(new) ->
#ifdef FILTER_LAST
     atomic { assert(PRESENT(g, k) == NULL); live[new] = k; may_happen(g, k, entry) };
     atomic { filter[b] = filter[b] | TAG(k); happens(g, k, entry) };
#else
     filter[b] = filter[b] | TAG(k);
     atomic { assert(PRESENT(g, k) == NULL); live[new] = k; happens(g, k, entry) };
#endif
     locked[b] = 0
  :: else -> atomic { assert(PRESENT(g, k) == NULL); live[new] = k; happens(g, k, entry); locked[b] = 0 }
  fi
}

inline replace(k, entry) {
  if
#ifdef EARLIER
  :: is_later(old) && new != NONE && (!is_later(new) || SEGMENT_OF(new) < SEGMENT_OF(old)) ->
     fill(new, entry);
     atomic { live[new] = k; happens(g, k, entry); drop(entry_in[old]) };
     atomic { vacate(old) }
#endif
  :: new == NONE || copy != NONE ->
     if
     :: new == NONE -> append(); copy = IN_LATER(o); new = copy + 1
     :: else
     fi;
     move_back(k, entry)
  :: else -> replace_here(k, entry)
  fi;
  locked[b] = 0
}
inline replace_here(k, entry) {
  fill(new, entry);
  atomic {
    assert(PRESENT(g, k) == entry_in[old]);
    drop(entry_in[old]);
    live[new] = k; vacate(old);
    happens(g, k, entry)
  }
}
inline move_back(k, entry) {
#ifdef REMOVE_FIRST
  atomic { vacate(old) };
#endif
#ifdef REPLACE_ACROSS
  fill(copy, entry);
#else
  fill(copy, entry_in[old]);
#endif
  filter[b] = filter[b] | TAG(k);
#ifdef REPLACE_ACROSS
  atomic { live[copy] = k; may_happen(g, k, entry) };
  atomic { drop(entry_in[old]); vacate(old); happens(g, k, entry) };
#else
  live[copy] = k;
#ifndef REMOVE_FIRST
  atomic { vacate(old) };
#endif
#ifndef KEEP_EMPTY
  if :: is_later(old) -> unlink_if_empty(SEGMENT_OF(old)) :: else fi;
#endif
  atomic { old = copy; copy = 0 };
  replace_here(k, entry)
#endif
}

inline same_class() { if :: is_later(i) && HAS_TAG(i, k) -> unknown = 1 :: else fi }
inline remove_later(k) {
  atomic { take_out(k) };
  unlink_if_empty(SEGMENT_OF(old));
  atomic {
#ifndef FILTER_CLEARED
    each_slot(b, same_class());
#endif
    if :: !unknown -> filter[b] = filter[b] & ~TAG(k) :: else fi;
    assert((filter[b] == 0) == (link[b] == 0));
    locked[b] = 0
  }
}
inline unlink_if_empty(s) {
  atomic {
    i = IN_LATER(s);
    do :: i == IN_LATER(s) + LATER || live[i] -> break :: else -> i++ od;
    if
    :: i == IN_LATER(s) + LATER ->
       /* One store to the segment before. */
       if
       :: link[b] == s + 1 -> link[b] = link_of[s]
       :: else ->
          o = link[b];
          do :: link_of[o - 1] == s + 1 -> break :: else -> o = link_of[o - 1] od;
          link_of[o - 1] = link_of[s]
       fi;
#ifdef CUT_LINK
       link_of[s] = 0;
#endif
#ifdef FREE_SEGMENT
       retire_at_once(SEGMENT(s))
#else
       retire(SEGMENT(s))
#endif
    :: else
    fi;
    i = 0; o = 0
  }
}

proctype updater(byte t, first, end) {
  byte op = first, n, g, b, i, o, old, new, copy, last, entry, k;
  byte free1, free2;
  bool here, unknown;
#ifdef NORECHECK
  int word, was;
  byte found;
#endif
  do
  :: op == end -> break
  :: else ->
     if :: k = A :: t == 2 -> k = C fi;
     if :: atomic { entry = op; key[op] = k } :: entry = NULL; drop(op) fi;
     update(k, entry);
     atomic { op++; entry = 0; k = 0 }
  od
}

/* Looks for k in one load of a word. Slots do not change while they are pinned. */
inline look_up(from, slots) {
  i = from;
  do
  :: i == from + slots -> break
  :: else ->
     if :: HAS_TAG(i, k) -> pinned[READER] = pinned[READER] | BIT(i) :: else fi;
     if :: live[i] == k -> found = entry_in[i] :: else fi;
     i++
  od;
  i = 0
}

proctype reader() {
  byte n, k, g, b, i, o, found, turn, hops, before, line_before;
  bool later;
#ifdef KEPT
  enter(READER);
#endif
  do
  :: turn == TURNS -> break
  :: else ->
     if :: k = A :: k = B fi;
#ifndef KEPT
     enter(READER);
#endif
     atomic {
       looking = 1;
       spans_clear = 0;
       seen = SEEN_AT_FIRST;
       before = resizes;
       line_before = current_line
     };
     g = current;
     do
     :: atomic {
          check_array(g);
          b = BUCKET(g, k);
          if
          :: moved[b] -> hops++; assert(hops <= 1 + resizes - before); g = next[g]
          :: else ->
             look_up(IN_FIRST(b), FIRST); later = (filter[b] & TAG(k)) != 0; break
          fi
        }
     od;
     if
     :: !found && later ->
        atomic { check_array(g); o = link[b] };
        do
        :: o && !found ->
           atomic { assert(!IS_FREE(SEGMENT(o - 1))); look_up(IN_LATER(o - 1), LATER) };
           if
           :: !found -> atomic { assert(!IS_FREE(SEGMENT(o - 1))); o = link_of[o - 1] }
           :: else
           fi
        :: else -> break
        od
     :: else
     fi;
     atomic {
       check_found();
       turn++;
       n = 0; k = 0; g = 0; b = 0; o = 0; found = 0; hops = 0; before = 0; line_before = 0; later = 0;
#ifdef KEPT
       if :: turn == TURNS -> leave(READER) :: else fi
#else
       leave(READER)
#endif
     }
  od
}

/* Copies the entry of slot x to the next array. */
inline copy_slot() {
  atomic {
    if
    :: live[x] && (pinned[t] & BIT(x)) -> /* Its hash is known. */
       to = BUCKET(h, live[x]);
       i = IN_FIRST(to);
       do :: i == IN_FIRST(to) + FIRST || live[i] == 0 -> break :: else -> i++ od;
       if
       :: i == IN_FIRST(to) + FIRST ->
          if :: link[to] == 0 -> assert(used < POOL); used++; link[to] = used :: else fi;
          i = IN_LATER(link[to] - 1);
          do :: live[i] == 0 -> break :: else -> i++ od;
          assert(i < IN_LATER(link[to]));
          filter[to] = filter[to] | TAG(live[x])
       :: else
       fi;
       live[i] = live[x]; entry_in[i] = entry_in[x]
    :: else
    fi;
    i = 0; to = 0
  }
}
inline copy_bucket(from) {
  x = IN_FIRST(from);
  do :: x == IN_FIRST(from) + FIRST -> break :: else -> copy_slot(); x++ od;
  s = link[from];
  do
  :: s == 0 -> break
  :: else ->
     x = IN_LATER(s - 1);
     do :: x == IN_LATER(s) -> break :: else -> copy_slot(); x++ od;
     s = link_of[s - 1]
  od;
  x = 0
}
/* What the words of a bucket show. */
inline add_to(words) {
#ifdef UNCHECKED_LINK
  words = words * 4 + (live[i] -> TAG(live[i]) : 0)
#else
  words = words | (live[i] -> BIT(i) : 0)
#endif
}
inline hash_slot() { pinned[t] = pinned[t] | (live[i] -> BIT(i) : 0); add_to(hashed) }
inline check_slot() { add_to(found) }
inline lock_from(from) {
#ifdef MOVE_UNLOCKED
  skip
#else
  atomic { !locked[from] -> locked[from] = 1 }
#endif
}
inline mark(from) { atomic { moved[from] = 1; locked[from] = 0 } }
inline add_moves(a) { moves[g] = moves[g] + a }
#define IS_SHRINK (BITS(h) < BITS(g))

inline move(from) {
  skip;
again:
  atomic {
    hashed = 0;
    each_slot(from, hash_slot());
    if :: IS_SHRINK -> each_slot(from + 1, hash_slot()) :: else fi
  };
  lock_from(from);
#ifndef MERGE_UNLOCKED
  if :: IS_SHRINK && !moved[from] -> lock_from(from + 1) :: else fi;
#endif
  if
  :: moved[from] -> locked[from] = 0
  :: else ->
#ifndef UNCHECKED
     atomic {
       d_step {
         found = 0;
         each_slot(from, check_slot());
         if :: IS_SHRINK -> each_slot(from + 1, check_slot()) :: else fi
       };
       if
       :: found != hashed ->
          locked[from] = 0; found = 0;
          if :: IS_SHRINK -> locked[from + 1] = 0 :: else fi;
          goto again
       :: else -> found = 0
       fi
     };
#endif
     copy_bucket(from);
     if
     :: !IS_SHRINK -> mark(from); add_moves(1)
     :: else ->
#ifdef MERGE_UNLOCKED
        mark(from);
        lock_from(from + 1);
        copy_bucket(from + 1); mark(from + 1);
#else
        copy_bucket(from + 1);
        mark(from); mark(from + 1);
#endif
        add_moves(2)
     fi
  fi;
  hashed = 0
}
inline publish() {
  atomic {
    if
    :: current == g ->
       current = h;
       retire(ARRAY(g));
       retire_segments(2 * g);
       if :: BITS(g) -> retire_segments(2 * g + 1) :: else fi
    :: else
    fi
  }
}
inline retire_segments(from) {
  s = link[from];
  do :: s == 0 -> break :: else -> retire(SEGMENT(s - 1)); s = link_of[s - 1] od
}

proctype mover(byte t) {
  byte n, g, h, b, i, o, s, x, to, from, count;
  int hashed, found;
  do
  :: count == RESIZES -> break
  :: else ->
     count++;
     enter(t);
     g = current;
     atomic {
       check_array(g);
       if
       :: next[g] == 0 && resizes < RESIZES ->
          next[g] = arrays; line[arrays] = line[g]; arrays++; resizes++
       :: else
       fi;
       h = next[g]
     };
     if
     :: h ->
        from = 2 * g;
        do
        :: from > 2 * g + BITS(g) -> break
        :: else -> move(from); from = from + 1 + (IS_SHRINK -> 1 : 0)
        od;
        /* The thread that moved the last bucket may be late. */
        if :: moves[g] == 1 + BITS(g) -> publish() :: else fi
     :: else
     fi;
     atomic { leave(t); g = 0; h = 0; b = 0; n = 0 }
  od
}

#ifdef EMPTY
proctype clearer(byte t) {
  byte n, g, h, b, i, o;
  enter(t);
  do
  :: g = current;
     if
     :: atomic {
          current == g ->
          h = arrays; arrays++; line[h] = 1; current = h;
          current_line = 1; spans_clear = looking; seen = seen | BIT(NULL);
          cleared = g + 1; cleared_awaited = inside
        };
        break
     :: current != g
     fi
  od;
  atomic { leave(t); h = 0; g = 0; n = 0 }
}
#endif

/* Begins grace periods, and ends each when it has seen every thread outside of older sections. */
proctype driver() {
  byte t;
  do
  :: begun == GRACES + 1 -> break
  :: else ->
     begun = begun + 1;
     t = 0;
     do
     :: t == THREADS -> break
     :: atomic { t < THREADS && (entered[t] == 0 || entered[t] >= begun) -> t++ }
     od;
     ended = begun
  od
}

init {
  byte e;
  atomic {
    key[1] = B; live[IN_FIRST(BUCKET(0, B))] = B; entry_in[IN_FIRST(BUCKET(0, B))] = 1; present[B] = 1;
#ifdef C0
    key[2] = C; live[IN_LATER(0)] = C; entry_in[IN_LATER(0)] = 2; present[C] = 2;
    used = 1; link[0] = 1; filter[0] = TAG(C);
#else
    dropped[2] = 1;
#endif
    run reader();
    run updater(1, 3, 3 + OPS);
    run updater(2, 3 + OPS, 3 + OPS + OPSC);
#if RESIZES > 0
    run mover(3);
#endif
#if MOVERS > 1
    run mover(4);
#endif
#ifdef EMPTY
    run clearer(5);
#endif
#if GRACES > 0
    run driver()
#endif
  };
  d_step {
    _nr_pr == 1 ->
    e = 1;
    do
    :: e == ENTRIES -> break
    :: else -> assert(dropped[e] != (PRESENT(current, key[e]) == e)); e++
    od
  }
}
