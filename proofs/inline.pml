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
#ifndef LATER
#define LATER 2
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
#ifndef POOL
#define POOL 4                         /* later segments; none is used twice */
#endif
#define SLOTS (BUCKETS * FIRST + POOL * LATER)
#define BITS(g) (g == 0 -> BITS0 : (g == 1 -> BITS1 : (g == 2 -> BITS2 : 0)))
#define BUCKET(g, k) (2 * (g) + (k == B -> BITS(g) : 0))
#define IN_FIRST(b) ((b) * FIRST)
#define IN_LATER(o) (BUCKETS * FIRST + (o) * LATER)
#define is_later(x) ((x) >= IN_LATER(0))
#define SEGMENT_OF(x) (((x) - IN_LATER(0)) / LATER)

/* Words: the key of each live slot (in the program: 7 bits of its hash), and else when it was vacated. */
byte live[SLOTS], stamp[SLOTS];
bool moved[BUCKETS], locked[BUCKETS];
byte filter[BUCKETS];                  /* the tags that later segments may have */
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
  inside = inside & ~BIT(t);
  entered[t] = 0; pinned[t] = 0;
  i = 0;
  do :: i == ITEMS -> break :: else -> awaited[i] = awaited[i] & inside; i++ od;
  i = 0;
  drop_cleared()
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
#ifdef REUSE_YOUNG
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
  if :: HAS_TAG(i, k) -> pinned[t] = pinned[t] | BIT(i); if :: live[i] == k -> old = i :: else fi :: else fi
}

/* One segment under the lock. */
inline look_in(from, slots) {
  free1 = NONE; free2 = NONE; here = 0;
  i = from;
  do
  :: i == from + slots -> break
  :: else ->
     if :: HAS_TAG(i, k) && !(pinned[t] & BIT(i)) -> unknown = 1; pinned[t] = pinned[t] | BIT(i) :: else fi;
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
/* The slot of k, and the usable slots for a new entry. */
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

inline first_word(w) {
  w = 0;
  i = IN_FIRST(b);
  do :: i == IN_FIRST(b) + FIRST -> break :: else -> w = w * 16 + (live[i] -> 10 + TAG(live[i]) : stamp[i]); i++ od;
  w = w * 4 + filter[b];
  i = 0
}

#ifdef REMOVE_LOCKED
#define CAN_TAKE_OUT (live[old] == k && !moved[b])
#else
#define CAN_TAKE_OUT (live[old] == k && !moved[b] && !locked[b])
#endif
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
  :: !entry && old != NONE && !is_later(old) -> /* Remove from the first segment, without the lock. */
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
    free3 = old; look(); unknown = 0; old = free3; free3 = 0; word = 0; was = 0;
#else
    look();
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
  :: new != NONE && copy == NONE && (is_later(old) && (!is_later(new) || SEGMENT_OF(old) != SEGMENT_OF(new))) ->
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
  if :: is_later(old) -> unlink_if_empty(SEGMENT_OF(old)) :: else fi;
  atomic { old = copy; copy = 0 };
  replace_here(k, entry)
#endif
}

inline same_class() { if :: is_later(i) && HAS_TAG(i, k) -> unknown = 1 :: else fi }
inline remove_later(k) {
#ifdef FILTER_FIRST
  atomic {
    live[old] = 0; each_slot(b, same_class()); live[old] = k;
    if :: !unknown -> filter[b] = filter[b] & ~TAG(k); may_happen(g, k, NULL) :: else fi;
    unknown = 0
  };
#endif
  atomic { take_out(k) };
  unlink_if_empty(SEGMENT_OF(old));
  atomic {
    each_slot(b, same_class());
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
  int word, was; byte free3;
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

/* Looks for k in one load of a word. */
inline look_up(from, slots) {
  i = from;
  do
  :: i == from + slots -> break
  :: else ->
     if :: HAS_TAG(i, k) -> pinned[READER] = pinned[READER] | BIT(i); if :: live[i] == k -> found = entry_in[i] :: else fi :: else fi;
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
#ifndef MOVED_LATE
          :: moved[b] -> hops++; assert(hops <= 1 + resizes - before); g = next[g]
          :: else ->
#else
          :: true ->
#endif
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
#ifdef MOVED_LATE
     if
     :: !found && moved[b] -> atomic { g = next[g]; b = BUCKET(g, k); look_up(IN_FIRST(b), FIRST) }
     :: else
     fi;
#endif
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
    :: live[x] && (hashed & BIT(x)) ->
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
inline hash_slot() { if :: live[i] -> hashed = hashed | BIT(i) :: else fi }
inline check_slot() { if :: live[i] -> same = same | BIT(i) :: else fi }
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
inline add_moves(a) { atomic { moves[g] = moves[g] + a; is_last = moves[g] == 1 + BITS(g) } }
#define IS_SHRINK (BITS(h) < BITS(g))

#ifdef UNCHECKED_LINK
/* The words of all segments, wherever these are. */
inline add_to_pattern() { word = word * 4 + (live[i] -> TAG(live[i]) : 0) }
inline pattern(w) { word = 0; each_slot(from, add_to_pattern()); w = word }
#endif

inline move(from) {
  skip;
again:
  /* Hash the keys, without a lock. */
  atomic {
    hashed = 0;
    each_slot(from, hash_slot());
    if :: IS_SHRINK -> each_slot(from + 1, hash_slot()) :: else fi;
    pinned[t] = pinned[t] | hashed;
#ifdef UNCHECKED_LINK
    pattern(was)
#endif
  };
  lock_from(from);
#ifndef MERGE_UNLOCKED
  if :: IS_SHRINK && !moved[from] -> lock_from(from + 1) :: else fi;
#endif
  if
#ifndef MOVED_FIRST
  :: moved[from] -> locked[from] = 0
#endif
  :: else ->
#ifndef UNCHECKED
     atomic {
       same = 0;
#ifdef UNCHECKED_LINK
       same = word;
       pattern(was);
       if
       :: same != was ->
#else
       each_slot(from, check_slot());
       if :: IS_SHRINK -> each_slot(from + 1, check_slot()) :: else fi;
       if
       :: same != hashed ->
#endif
          locked[from] = 0; same = 0;
          if :: IS_SHRINK -> locked[from + 1] = 0 :: else fi;
          goto again
       :: else -> same = 0
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
     fi;
     if :: is_last -> publish() :: else fi
  fi;
#ifdef UNCHECKED_LINK
  word = 0; was = 0;
#endif
  atomic { is_last = 0; hashed = 0 }
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
       retire_segments(2 * g);
       if :: BITS(g) -> retire_segments(2 * g + 1) :: else fi
    :: else
    fi
#endif
  }
}
inline retire_segments(from) {
  s = link[from];
  do :: s == 0 -> break :: else -> retire(SEGMENT(s - 1)); s = link_of[s - 1] od
}

proctype mover(byte t) {
  byte n, g, h, b, i, o, s, x, to, from, count;
  int hashed, same;
#ifdef UNCHECKED_LINK
  int word, was;
#endif
  bool is_last;
  do
  :: count == RESIZES -> break
  :: else ->
     count++;
     enter(t);
     g = current;
     atomic {
       check_array(g);
       if
       :: next[g] == 0 && arrays < ARRAYS ->
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
        od
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
#ifndef STORE_EMPTY
          current == g ->
#endif
          h = arrays; arrays++; line[h] = 1;
          current = h; current_line = 1; spans_clear = looking; seen = seen | BIT(NULL);
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
  atomic { leave(t); h = 0; g = 0; n = 0 }
}
#endif

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
    key[2] = C; used = 1; link[0] = 1; live[IN_LATER(0)] = C; entry_in[IN_LATER(0)] = 2; filter[0] = TAG(C); present[C] = 2;
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
