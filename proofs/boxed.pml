/* The bucket table with boxed entries (crates/bucket): slots hold pointers to entries. Lookups and
 * updates during resizes and a clear. Each access to shared memory is a step of its own, except
 * that a thread with the bucket's lock searches it in one step, because no other thread changes it.
 * Memory is sequentially consistent.
 *
 * A bucket is a first segment in the array, and at most one later segment outside of it. A segment
 * has a word with a tag per slot, and a pointer per slot. The first word also has the flags LOCKED
 * and MOVED, and a filter: the classes of tags that the later segment may have.
 *
 * The pointer is the truth: an entry is in the table exactly while a pointer leads to it. A tag is
 * set before its pointer, and cleared after the pointer was set to null. The filter's bit is set
 * before the pointer of an entry in the later segment, and cleared after the last such pointer was
 * set to null. So a slot may be used again at once. (Whether a removal clears the tag or the filter's
 * bit before the pointer does not matter: the first of these steps is when it takes effect.)
 *
 *   Lookup:  load the array's pointer, then the first word. If the bucket has moved, go on in the
 *            next array. Load the pointers of the slots with the key's tag, and compare keys. If
 *            the filter had a bit for the key, do the same in the later segment.
 *   Update:  search without a lock, and note the entries that were compared. Lock the bucket. Look
 *            at the slots with the key's tag again. Is there an entry that was not compared? Then
 *            unlock, compare it, and lock again. A replacement exchanges the pointer in place.
 *            An empty later segment is unlinked at once.
 *   Resize:  link a new array to the published one. For each target: lock the buckets that become
 *            part of it, copy their pointers, then set MOVED in each, which unlocks it. Whoever
 *            finds that all buckets have moved publishes the new array by a compare-exchange, and
 *            retires the old one if that succeeds. Growth waits for no reader. A shrink waits until
 *            all earlier arrays were freed.
 *   Clear:   publish an empty array by a compare-exchange. After a grace period, drop the entries
 *            of the replaced array and of its successor: those of buckets that have not moved.
 *            Updates that loaded the replaced array act on it, and count as having come before.
 *
 * Keys: A and C have the same tag, and the same bucket in each array. B has another tag, and in
 * arrays of two buckets the other bucket. No updater touches B.
 *
 *   -DBITS0=n, -DBITS1=n, -DBITS2=n
 *                 the arrays have 2^n buckets, at most 2; equal numbers are a growth, too
 *   -DRESIZES=n   the resizes; -DMOVERS=n threads do them
 *   -DFIRST=n, -DLATER=n
 *                 the slots of first and later segments
 *   -DOPS=n       the updates of A by the first updater
 *   -DOPSC=n      the updates of A or C by the second updater
 *   -DC0          C is in the table at the start
 *   -DTURNS=n     the lookups
 *   -DKEPT        the reader stays in one section for all of its lookups
 *   -DEMPTY       a thread clears the table
 *   -DSHRINK_AT_ONCE
 *                 a shrink does not wait for earlier arrays: only memory depends on that
 *
 * Checked:
 *   - A lookup returns a value that its key had at some instant of the lookup.
 *   - An update returns the entry that it replaces.
 *   - A lookup hops once, and once more for each resize that began during it.
 *   - No thread accesses an array, a segment or an entry that was freed.
 *   - At the end each entry is in the table, or was freed, once.
 *
 * Each of these switches leaves out or misplaces one step, and in a run of runs.txt a check fails:
 *
 *   NORECHECK       an update locks by a compare-exchange from the word that its search has seen,
 *                   and does not look again
 *   TAG_LAST        an insertion stores the pointer before the tag
 *   FILTER_LAST     an insertion stores the pointer before the filter's bit
 *   FREE_ENTRY      an entry is freed as soon as it is removed
 *   FREE_SEGMENT    a later segment is freed as soon as it is unlinked
 *   FREE_ARRAY      a replaced array is freed at once
 *   UPDATE_UNLOCKED an update does not wait for the bucket's lock
 *   MOVE_UNLOCKED   a resize does not lock the bucket that it moves
 *   MOVED_LATE      lookups read MOVED after they have looked for the key
 *   MOVED_FIRST     MOVED is set before the pointers are copied
 *   MERGE_UNLOCKED  buckets that become one are moved one after the other
 *   PUBLISH_EARLY   a resize publishes its array before all buckets have moved
 *   STORE_RESIZED   a resize publishes its array by a store
 *   STORE_EMPTY     a clear publishes its array by a store
 *   DROP_MOVED      a clear drops the entries of moved buckets, too
 *   DROP_ONE        a clear does not drop the entries of the array's successor
 *   DROP_AT_ONCE    a clear drops entries without a grace period
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
#define FIRST 2
#endif
#ifndef LATER
#define LATER 1
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
#ifdef EMPTY
#define ARRAYS (RESIZES + 2)
#else
#define ARRAYS (RESIZES + 1)
#endif

#define A 0
#define C 1
#define B 2
#define TAG(k) (k == B -> 2 : 1)
#define NULL 0
#define NONE 255

/* Entries: 1 is B; 2 is C at the start; the others belong to an update each. */
#define ENTRIES (3 + OPS + OPSC)
#define BIT(x) (1 << (x))
byte key[ENTRIES];

#define BUCKETS (ARRAYS * 2)
#define POOL 4                         /* later segments; none is used twice */
#define SLOTS (BUCKETS * FIRST + POOL * LATER)
#define BITS(g) (g == 0 -> BITS0 : (g == 1 -> BITS1 : (g == 2 -> BITS2 : 0)))
#define BUCKET(g, k) (2 * (g) + (k == B -> BITS(g) : 0))
#define IN_FIRST(b) ((b) * FIRST)
#define IN_LATER(o) (BUCKETS * FIRST + (o) * LATER)

/* Words, and pointers. */
byte tag[SLOTS], pointer[SLOTS];
bool moved[BUCKETS], locked[BUCKETS];
byte filter[BUCKETS];                  /* the tags that the later segment may have */
byte link[BUCKETS];                    /* the number of the later segment plus 1; 0 for none */
byte used;                             /* later segments that are in use or were */
/* Arrays. */
byte next[ARRAYS];                     /* 0 for none */
byte moves[ARRAYS];                    /* buckets that have moved */
byte current, arrays = 1;
byte resizes;

/* Grace periods: what is retired waits for the threads that are in a section at that time. */
#define READER 0
byte inside;
#define ITEMS (ENTRIES + POOL + ARRAYS)
#define SEGMENT(o) (ENTRIES + (o))
#define ARRAY(g) (ENTRIES + POOL + (g))
bool retired[ITEMS];
byte awaited[ITEMS];
#define IS_FREE(x) (retired[x] && awaited[x] == 0)
inline retire(x) { assert(!retired[x]); retired[x] = 1; awaited[x] = inside }
inline retire_at_once(x) { assert(!retired[x]); retired[x] = 1 }
inline enter(t) { inside = inside | BIT(t) }
inline leave(t) {
  d_step {
    inside = inside & ~BIT(t);
    i = 0;
    do :: i == ITEMS -> break :: else -> awaited[i] = awaited[i] & inside; i++ od;
    i = 0;
    drop_cleared()
  }
}

/* The history. A clear begins a new line of arrays. What updates of the replaced line do counts as
 * having happened at the instant of the clear. */
byte line[ARRAYS], current_line;
byte present[6];                       /* the entry of each key, for each line */
#define PRESENT(g, k) present[line[g] * 3 + (k)]
int seen;                              /* the entries of A during the lookup */
bool looking, spans_clear;
/* An update takes effect when a step says so, or when a lookup has returned its result before. */
byte pending = NONE;
#define COUNTS(g, k) (k == A && (line[g] == current_line || spans_clear))
inline may_happen(g, k, p) { if :: COUNTS(g, k) -> pending = p; seen = seen | BIT(p) :: else fi }
inline happens(g, k, p) {
  PRESENT(g, k) = p;
  if :: COUNTS(g, k) -> pending = NONE; seen = seen | BIT(p) :: else fi
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
  if \
  :: link[b] -> \
     i = IN_LATER(link[b] - 1); \
     do :: i == IN_LATER(link[b]) -> break :: else -> visit; i++ od \
  :: else \
  fi; \
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
#ifdef DROP_ONE
        break
#else
        if :: next[g] -> g = next[g] :: else -> break fi
#endif
     od;
     i = 0; b = 0; g = 0
  :: else
  fi
#else
  skip
#endif
}
inline drop_slot() { if :: pointer[i] -> retire_at_once(pointer[i]) :: else fi }
inline drop_bucket() {
  each_slot(b, drop_slot());
  if :: link[b] -> retire_at_once(SEGMENT(link[b] - 1)) :: else fi
}

inline check_array(g) { assert(!IS_FREE(ARRAY(g))) }

inline compare() {
  if :: pointer[i] && tag[i] == TAG(k) -> compared = compared | BIT(pointer[i]) :: else fi;
  if :: pointer[i] && key[pointer[i]] == k -> old = i :: else fi
}
/* Looks under the lock for the slot of k, the first free one in the order of the walk, and entries
 * that were not compared. */
inline look() {
  if
  :: pointer[i] && tag[i] == TAG(k) && !(compared & BIT(pointer[i])) -> unknown = unknown | BIT(pointer[i])
  :: else
  fi;
  if :: pointer[i] && key[pointer[i]] == k -> old = i :: else fi;
  if :: pointer[i] == NULL && tag[i] == 0 && new == NONE -> new = i :: else fi
}

#ifdef NORECHECK
inline first_word(w) {
  w = filter[b];
  i = IN_FIRST(b);
  do :: i == IN_FIRST(b) + FIRST -> break :: else -> w = w * 4 + tag[i]; i++ od;
  i = 0
}
#endif
#ifdef UPDATE_UNLOCKED
#define IS_LOCKED(b) false
#else
#define IS_LOCKED(b) locked[b]
#endif
#define is_later(x) (x >= IN_LATER(0))

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
    first_word(word)
#endif
  };
lock:
  atomic {
    check_array(g);
    b = BUCKET(g, k);
    if
    :: moved[b] -> g = next[g]; goto lock
    :: !moved[b] && !IS_LOCKED(b) ->
#ifdef NORECHECK
       first_word(was);
       if :: was != word -> goto search :: else fi;
#endif
       locked[b] = 1
    fi
  };
  atomic {
#ifdef NORECHECK
    d_step { found = old; new = NONE; each_slot(b, look()); old = found; unknown = 0; found = 0; word = 0; was = 0 };
#else
    d_step { old = NONE; new = NONE; unknown = 0; each_slot(b, look()) };
#endif
    if
    :: unknown -> locked[b] = 0; compared = compared | unknown; goto lock
    :: else
    fi
  };
  if
  :: entry && old != NONE -> replace(k, entry)
  :: entry && old == NONE -> insert(k, entry)
  :: !entry && old != NONE -> remove(k)
  :: else -> assert(PRESENT(g, k) == NULL)
  fi;
done:
  locked[b] = 0;
  atomic {
    leave(t);
    g = 0; b = 0; old = 0; new = 0; compared = 0; unknown = 0
  }
}
#ifdef FREE_ENTRY
inline discard(p) { retire_at_once(p) }
#else
inline discard(p) { retire(p) }
#endif

inline insert(k, entry) {
  if
  :: new == NONE ->
     atomic { assert(!link[b]); assert(used < POOL); used++; link[b] = used; new = IN_LATER(used - 1) }
  :: else
  fi;
  if
  :: is_later(new) ->
#ifdef FILTER_LAST
     tag[new] = TAG(k);
     atomic { pointer[new] = entry; may_happen(g, k, entry) };
     atomic { filter[b] = filter[b] | TAG(k); happens(g, k, entry) };
     goto done
#else
     filter[b] = filter[b] | TAG(k)
#endif
  :: else
  fi;
#ifdef TAG_LAST
  atomic { pointer[new] = entry; may_happen(g, k, entry) };
  atomic { tag[new] = TAG(k); happens(g, k, entry) }
#else
  tag[new] = TAG(k);
  atomic { assert(PRESENT(g, k) == NULL); pointer[new] = entry; happens(g, k, entry) }
#endif
}

inline replace(k, entry) {
  atomic { was = pointer[old]; pointer[old] = entry; assert(was == PRESENT(g, k)); happens(g, k, entry) };
  atomic { discard(was); was = 0 }
}

inline same_class() { if :: is_later(i) && tag[i] == TAG(k) -> unknown = 1 :: else fi }
inline remove(k) {
  atomic { was = pointer[old]; assert(was == PRESENT(g, k)); pointer[old] = NULL; happens(g, k, NULL) };
  atomic { discard(was); was = 0 };
  tag[old] = 0;
  if
  :: is_later(old) ->
     atomic {
       each_slot(b, same_class());
       if :: !unknown -> filter[b] = filter[b] & ~TAG(k) :: else fi;
       unknown = 0
     }
  :: else
  fi;
  if
  :: link[b] && filter[b] == 0 ->
     atomic {
       was = link[b];
       link[b] = 0;
#ifdef FREE_SEGMENT
       retire_at_once(SEGMENT(was - 1));
#else
       retire(SEGMENT(was - 1));
#endif
       was = 0
     }
  :: else
  fi
}

proctype updater(byte t, first, end) {
  byte n = first, g, b, i, old, new, was, entry, k;
  int compared, unknown;
#ifdef NORECHECK
  int word;
  byte found;
#endif
  do
  :: n == end -> break
  :: else ->
     if :: k = A :: t == 2 -> k = C fi;
     if :: atomic { entry = n; key[n] = k } :: entry = NULL; retire_at_once(n) fi;
     update(k, entry);
     atomic { n++; entry = 0; k = 0 }
  od
}

/* Looks for k in the slots from `from`. `tagged` is their word. */
inline compare_slots(from, slots) {
  s = 0;
  do
  :: s == slots -> break
  :: s < slots && !(tagged & BIT(s)) -> s++
  :: s < slots && (tagged & BIT(s)) ->
     atomic { check_array(g); p = pointer[from + s] };
     atomic {
       if
       :: p -> assert(!IS_FREE(p)); if :: key[p] == k -> found = p :: else fi
       :: else
       fi;
       p = 0
     };
     if :: found -> break :: else -> s++ fi
  od;
  s = 0
}
inline load_tags(from, slots) {
  tagged = 0; s = 0;
  do :: s == slots -> break :: else -> if :: tag[from + s] == TAG(k) -> tagged = tagged | BIT(s) :: else fi; s++ od;
  s = 0
}

proctype reader() {
  byte k, g, b, i, s, p, o, found, tagged, turn, hops, before, line_before;
  bool later;
  do
  :: turn == TURNS -> break
  :: else ->
     atomic {
       if :: k = A :: k = B fi;
       enter(READER);
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
#ifndef MOVED_LATE
          :: moved[b] -> hops++; assert(hops <= 1 + resizes - before); g = next[g]
          :: else ->
#else
          :: true ->
#endif
             load_tags(IN_FIRST(b), FIRST); later = (filter[b] & TAG(k)) != 0; break
          fi
        }
     od;
     compare_slots(IN_FIRST(b), FIRST);
     if
     :: !found && later ->
        atomic { check_array(g); o = link[b] };
        if
        :: o ->
           atomic { assert(!IS_FREE(SEGMENT(o - 1))); load_tags(IN_LATER(o - 1), LATER) };
           compare_slots(IN_LATER(o - 1), LATER)
        :: else
        fi
     :: else
     fi;
#ifdef MOVED_LATE
     if
     :: !found && moved[b] ->
        atomic { g = next[g]; b = BUCKET(g, k); load_tags(IN_FIRST(b), FIRST) };
        compare_slots(IN_FIRST(b), FIRST)
     :: else
     fi;
#endif
     atomic {
       check_found();
       turn++;
       k = 0; g = 0; b = 0; o = 0; found = 0; tagged = 0; hops = 0; before = 0; line_before = 0; later = 0;
#ifdef KEPT
       if :: turn == TURNS -> leave(READER) :: else fi
#else
       leave(READER)
#endif
     }
  od
}

/* Copies the pointers of bucket `from` to the next array. */
inline copy_slot() {
  atomic {
    p = pointer[x];
    if
    :: p ->
       to = BUCKET(h, key[p]);
       i = IN_FIRST(to);
       do :: i == IN_FIRST(to) + FIRST || pointer[i] == NULL -> break :: else -> i++ od;
       if
       :: i == IN_FIRST(to) + FIRST ->
          if :: link[to] == 0 -> assert(used < POOL); used++; link[to] = used :: else fi;
          i = IN_LATER(link[to] - 1);
          do :: pointer[i] == NULL -> break :: else -> i++ od;
          assert(i < IN_LATER(link[to]));
          filter[to] = filter[to] | TAG(key[p])
       :: else
       fi;
       tag[i] = TAG(key[p]); pointer[i] = p
    :: else
    fi;
    i = 0; to = 0; p = 0
  }
}
inline copy(from) {
  x = IN_FIRST(from);
  do :: x == IN_FIRST(from) + FIRST -> break :: else -> copy_slot(); x++ od;
  if
  :: link[from] ->
     x = IN_LATER(link[from] - 1);
     do :: x == IN_LATER(link[from]) -> break :: else -> copy_slot(); x++ od
  :: else
  fi;
  x = 0
}
inline lock_from(from) {
#ifndef MOVE_UNLOCKED
  atomic { !locked[from] -> locked[from] = 1 };
#endif
#ifdef MOVED_FIRST
  moved[from] = 1
#else
  skip
#endif
}
inline mark(from) { atomic { moved[from] = 1; locked[from] = 0 } }
inline add_moves(a) { moves[g] = moves[g] + a }

/* Later buckets of a shrink are locked after the first one, which says whether they have moved. */
inline move(from) {
  lock_from(from);
  if
#ifndef MOVED_FIRST
  :: moved[from] -> locked[from] = 0
#endif
  :: else ->
     if
     :: BITS(h) >= BITS(g) -> copy(from); mark(from); add_moves(1)
     :: else ->
#ifdef MERGE_UNLOCKED
        copy(from); mark(from);
        lock_from(from + 1);
        copy(from + 1); mark(from + 1);
#else
        lock_from(from + 1);
        copy(from); copy(from + 1);
        mark(from); mark(from + 1);
#endif
        add_moves(2)
     fi
  fi
}
inline publish() {
  atomic {
#ifdef STORE_RESIZED
    current = h;
#else
    if
    :: current == g ->
       current = h;
#ifdef FREE_ARRAY
       retire_at_once(ARRAY(g));
#else
       retire(ARRAY(g));
#endif
       retire_segments()
    :: else
    fi
#endif
  }
}
/* The later segments of a replaced array are freed with it. */
inline retire_segments() {
  if :: link[2 * g] -> retire(SEGMENT(link[2 * g] - 1)) :: else fi;
  if :: BITS(g) && link[2 * g + 1] -> retire(SEGMENT(link[2 * g + 1] - 1)) :: else fi
}
#define EARLIER_FREED(g) ((g < 1 || IS_FREE(ARRAY(0))) && (g < 2 || IS_FREE(ARRAY(1))))

proctype mover(byte t) {
  byte g, h, b, i, x, to, p, n;
  do
  :: n == RESIZES -> break
  :: else ->
     n++;
     enter(t);
     g = current;
     /* Begin a resize, unless another thread has. */
     atomic {
       check_array(g);
       if
#ifdef SHRINK_AT_ONCE
       :: next[g] == 0 && resizes < RESIZES ->
#else
       :: next[g] == 0 && resizes < RESIZES && (BITS(arrays) >= BITS(g) || EARLIER_FREED(g)) ->
#endif
          next[g] = arrays; line[arrays] = line[g]; arrays++; resizes++
       :: else
       fi;
       h = next[g]
     };
     if
     :: h ->
#ifdef PUBLISH_EARLY
        publish();
#endif
        move(2 * g);
        if :: BITS(g) && BITS(h) >= BITS(g) -> move((2 * g + 1)) :: else fi;
        /* The thread that moved the last bucket may be late. */
        if :: moves[g] == 1 + BITS(g) -> publish() :: else fi
     :: else
     fi;
     atomic { leave(t); g = 0; h = 0; b = 0 }
  od
}

#ifdef EMPTY
proctype clearer(byte t) {
  byte g, h, b, i;
  enter(t);
  do
  :: g = current;
     if
     :: atomic {
#ifndef STORE_EMPTY
          current == g ->
#endif
          h = arrays; arrays++; line[h] = 1;
          current = h; current_line = 1; spans_clear = looking; seen = seen | BIT(NULL);
#ifdef STORE_EMPTY
          assert(!cleared);
#endif
          cleared = g + 1;
#ifdef DROP_AT_ONCE
          cleared_awaited = 0
#else
          cleared_awaited = inside
#endif
        };
        break
#ifndef STORE_EMPTY
     :: current != g
#endif
     fi
  od;
  atomic { leave(t); h = 0 }
}
#endif

init {
  byte i, n;
  atomic {
    key[1] = B; tag[IN_FIRST(BUCKET(0, B))] = TAG(B); pointer[IN_FIRST(BUCKET(0, B))] = 1; present[B] = 1;
#ifdef C0
    key[2] = C; tag[IN_FIRST(0) + FIRST - 1] = TAG(C); pointer[IN_FIRST(0) + FIRST - 1] = 2; present[C] = 2;
#else
    retired[2] = 1;
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
    run clearer(5)
#endif
  };
  d_step {
    _nr_pr == 1 ->
    n = 1;
    do
    :: n == ENTRIES -> break
    :: else ->
       assert(retired[n] != (PRESENT(current, key[n]) == n));
       n++
    od
  }
}
