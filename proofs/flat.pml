/* The flat table (crates/map/src/flat), whose entries are in the buckets themselves: lookups and
 * updates while it is resized, without any wait for readers. Each access to shared memory is a step
 * of its own. Memory is sequentially consistent.
 *
 * A bucket has a first segment in the array, and may have a second one outside of it. A segment
 * has a few slots, and a word that shows the key of each live slot. (In the code: a tag of its
 * hash.) The word of the first segment also has the bucket's lock and the flag MOVED. The link to
 * the second segment has a filter: the keys that may be there.
 *
 *   Lookup:  read the word of the first segment. If the bucket has moved, go on in the next array.
 *            Else read the slot with the key, or look in the second segment if the filter allows.
 *   Update:  lock the bucket. Write the new entry into a free slot, and publish it in one store
 *            that also removes the entry that it replaces. So both have to be in one segment: an
 *            entry of the first segment, where no slot is free, is moved to the second one before
 *            it is replaced. If no slot is free there, replace the whole second segment by a copy.
 *   Reuse:   a slot that has held an entry is free again after a grace period. The update that
 *            removes the entry notes the number of the latest grace period that has begun, after
 *            it has entered its read section. When the second one after that has ended, the slot
 *            is free: the first one waits for the update, the second for readers from before it.
 *   Clear:   for each bucket without a second segment: remove all entries in one exchange, which fails
 *            if the word has changed. Else lock it, remove the entries of the first segment in one
 *            store, and the second segment.
 *   Resize:  for each bucket: lock it, copy its entries to the next array, and set MOVED. Buckets that
 *            become one are locked and copied all, before one of them gets MOVED. Then
 *            publish the next array. The replaced array is freed after a grace period. The next
 *            resize begins at once.
 *
 * Keys: only a clear removes R. Updaters insert, replace, and remove A, and C. All three share the
 * bucket of a table of one bucket. With more buckets, A has one for itself.
 *
 *   -DGENS=n      the number of arrays, one after the other
 *   -DBITS0=n, -DBITS1=n, -DBITS2=n
 *                 the arrays have 2^n buckets
 *   -DFIRST=n     the slots of a first segment
 *   -DOPS=n       the updates of A. Each third one removes it.
 *   -DOPSC=n      the updates of C. Each second one removes it.
 *   -DTURNS=n     the lookups
 *   -DKEPT        the reader stays in one section for all of its lookups
 *   -DGRACES=n    the number of grace periods
 *   -DEMPTY       a thread clears the table, instead of the updates of C
 *
 * Checked:
 *   - Lookups find R, and some order of the updates of A explains what lookups of A return.
 *   - No slot is written while a reader may have a reference to it.
 *   - No thread accesses an array or a segment that was freed.
 *   - A clear removes what was there when it began.
 *   - At the end each bucket has exactly its entries.
 *
 * Each of these switches leaves out or misplaces one step, and in a run of runs.txt a check fails:
 *
 *   REUSE_AT_ONCE   a slot is free as soon as its entry is removed
 *   REUSE_EARLY     a slot is free after the first grace period
 *   STALE_STAMP     an update notes the number that it has read when it entered its section
 *   EARLIER         an entry may be replaced by one in an earlier segment
 *   REPLACE_ACROSS  an entry of the first segment is replaced by one in the second one: a lookup
 *                   may return the new value, and the next one the old value
 *   REMOVE_FIRST    an entry is removed from the first segment before it is in the second one
 *   FREE_SEGMENT    a replaced second segment is freed at once
 *   FREE_ARRAY      a replaced array is freed at once
 *   MOVED_LATE      lookups read MOVED after they have looked for the key
 *   MOVED_FIRST     MOVED is set before the entries are copied
 *   CLEAR           the second segment of a moved bucket is cleared
 *   PUBLISH_FIRST   an array is published before all buckets have moved to it
 *   MOVE_UNLOCKED   the resizer does not lock the bucket that it moves
 *   EMPTY_UNLOCKED  a clear empties a bucket without its lock
 *   EMPTY_MOVED     a clear empties a bucket although that has moved
 *   SKIP_OTHER      a clear goes on behind the bucket of the published array, whichever it has cleared
 *   MERGE_UNLOCKED  buckets that become one are moved one after the other
 *   MERGE_OPEN      the bucket that they become is not locked until all of them have the flag MOVED: a
 *                   clear may empty it while lookups still find the entries where they were
 */
#ifndef GENS
#define GENS 2
#endif
#ifndef BITS0
#define BITS0 0
#endif
#ifndef BITS1
#define BITS1 1
#endif
#ifndef BITS2
#define BITS2 2
#endif
#ifndef FIRST
#define FIRST 1
#endif
#ifndef OPS
#define OPS 3
#endif
#ifndef OPSC
#define OPSC 1
#endif
#ifndef TURNS
#define TURNS 1
#endif
#ifndef GRACES
#define GRACES 2
#endif

#define NONE 0
#define R 1
#define A 2
#define C 3
#define PLACE(k) (k == A -> 2 : 0)
#define RESIDENT 77

#define SECOND 3                       /* the slots of a second segment: one for each key */
#define POOL 6                         /* second segments; none is used twice */
#define BUCKETS (GENS * 4)
#define SLOTS (BUCKETS * FIRST + POOL * SECOND)
#define BITS(g) (g == 0 -> BITS0 : (g == 1 -> BITS1 : BITS2))
#define BUCKET(g, k) (g * 4 + (PLACE(k) >> (2 - BITS(g))))
#define IN_FIRST(b) ((b) * FIRST)
#define IN_SECOND(o) (BUCKETS * FIRST + (o) * SECOND)
#define BIT(k) (1 << (k))

/* Words. */
byte live[SLOTS];
bool moved[BUCKETS], locked[BUCKETS];
byte second[BUCKETS];                  /* the number of the second segment plus 1; 0 for none */
byte filter[BUCKETS];
/* Slots. */
byte value[SLOTS];
byte stamp[SLOTS];                     /* the grace period noted when an entry was removed; 0 for none */

byte current;                          /* the published array */
byte used;                             /* second segments that are in use or were */
byte array_freed_by[GENS], segment_freed_by[POOL]; /* the grace period; 0 for never */

/* Grace periods: see crates/rcu/src/design.rs. */
byte begun = 1, ended = 1;
byte entered[3];
#define READER 0

byte held[TURNS];                      /* the slots plus 1 to which the reader has references */
byte started, finished;                /* updates of A */
byte gone[4];                          /* of each key, a bit for each value that was cleared */
#define VALUE_BIT(k, v) (k == R -> 1 : 1 << (v))
#define IS_GONE(k, v) (gone[k] & VALUE_BIT(k, v))

inline check_array(g) { assert(array_freed_by[g] == 0 || ended < array_freed_by[g]) }
inline check_segment(o) { assert(segment_freed_by[o] == 0 || ended < segment_freed_by[o]) }

#ifdef REUSE_AT_ONCE
#define IS_FREE(x) (live[x] == NONE)
#else
#ifdef REUSE_EARLY
#define IS_FREE(x) (live[x] == NONE && (stamp[x] == 0 || ended >= stamp[x] + 1))
#else
#define IS_FREE(x) (live[x] == NONE && (stamp[x] == 0 || ended >= stamp[x] + 2))
#endif
#endif

inline fill(x, v) {
  atomic {
    assert(live[x] == NONE);
    i = 0;
    do :: i == TURNS -> break :: else -> assert(held[i] != x + 1); i++ od;
    i = 0;
    value[x] = v
  }
}

inline remove(x, section) { live[x] = NONE; stamp[x] = section }

inline enter(t) { n = begun; entered[t] = n }

/* Finds the slot of k in a locked bucket, and a free slot in the first and in the second segment;
 * 255 for none. */
inline search(b, k) {
  d_step {
    old = 255; free1 = 255; free2 = 255;
    i = IN_FIRST(b);
    do
    :: i == IN_FIRST(b) + FIRST -> break
    :: else ->
       if :: live[i] == k -> old = i :: else fi;
       if :: IS_FREE(i) && free1 == 255 -> free1 = i :: else fi;
       i++
    od;
    if
    :: second[b] ->
       i = IN_SECOND(second[b] - 1);
       do
       :: i == IN_SECOND(second[b]) -> break
       :: else ->
          if :: live[i] == k -> old = i :: else fi;
          if :: IS_FREE(i) && free2 == 255 -> free2 = i :: else fi;
          i++
       od
    :: else
    fi;
    i = 0
  }
}

#define OLD_IN_FIRST (old != 255 && old < IN_SECOND(0))
#define OLD_IN_SECOND (old != 255 && old >= IN_SECOND(0))
#ifdef EARLIER
#define MAY_USE_FIRST (free1 != 255)
#else
#define MAY_USE_FIRST (free1 != 255 && !OLD_IN_SECOND)
#endif

/* Makes v the value of k in a locked bucket, after a search. */
inline put(b, k, v, section) {
  if
  :: MAY_USE_FIRST ->
     fill(free1, v);
     if
     :: OLD_IN_SECOND -> live[free1] = k; atomic { remove(old, section) }
     :: else -> atomic { live[free1] = k; if :: old != 255 -> remove(old, section) :: else fi }
     fi
  :: else ->
     if
     :: OLD_IN_FIRST -> move_to_second(b, k, v, section)
     :: else
     fi;
     put_in_second(b, k, v, section)
  fi
}

/* Moves the entry of k from the first segment to the second one: it is in both for a while, with
 * the same value. */
inline move_to_second(b, k, v, section) {
#ifdef REMOVE_FIRST
  atomic { m = old; remove(m, section); old = 255 };
  put_in_second(b, k, value[m], section);
#else
#ifdef REPLACE_ACROSS
  m = old; old = 255;
  put_in_second(b, k, v, section);
#else
  m = old; old = 255;
  put_in_second(b, k, value[m], section);
#endif
  atomic { remove(m, section) };
#endif
  m = 0;
  search(b, k)
}

/* Makes v the value of k, which is in the second segment or nowhere. */
inline put_in_second(b, k, v, section) {
  if
  :: free2 != 255 ->
     fill(free2, v);
     filter[b] = filter[b] | BIT(k);
     atomic { live[free2] = k; if :: old != 255 -> remove(old, section) :: else fi }
  :: else ->
     atomic { assert(used < POOL); o = used; used++ };
     copy_second(b, k, v);
     j = second[b];
     atomic { second[b] = o + 1; filter[b] = filter[b] | BIT(k) };
     atomic {
       if
#ifdef FREE_SEGMENT
       :: j -> segment_freed_by[j - 1] = ended
#else
       :: j -> segment_freed_by[j - 1] = begun + 1
#endif
       :: else
       fi;
       j = 0
     }
  fi
}

/* Fills a new second segment: with the entries of the present one except that of k, and with k. */
inline copy_second(b, k, v) {
  d_step {
    j = IN_SECOND(o);
    live[j] = k; value[j] = v; j++;
    if
    :: second[b] ->
       i = IN_SECOND(second[b] - 1);
       do
       :: i == IN_SECOND(second[b]) -> break
       :: else ->
          if
          :: live[i] != NONE && live[i] != k -> live[j] = live[i]; value[j] = value[i]; j++
          :: else
          fi;
          i++
       od
    :: else
    fi;
    i = 0; j = 0
  }
}

/* Locks the bucket of k. The caller is in a section. */
inline lock(k) {
  g = current;
  do
  :: atomic {
       check_array(g);
       b = BUCKET(g, k);
       if
       :: moved[b] -> g++
       :: !moved[b] && !locked[b] -> locked[b] = 1; break
       fi
     }
  od
}

proctype updater(byte t, k, updates) {
  byte n, g, b, i, j, o, m, old, free1, free2, update;
  do
  :: update == updates -> break
  :: else ->
     enter(t);
     lock(k);
#ifndef STALE_STAMP
     n = begun; /* Grace periods may have begun since `enter` read the number. */
#endif
     search(b, k);
     update++;
     if :: k == A -> started = update :: else fi;
     if
     :: (k == A && update % 3 == 0) || (k == C && update % 2 == 0) ->
        atomic { if :: old != 255 -> remove(old, n) :: else fi }
     :: else -> put(b, k, update, n)
     fi;
     locked[b] = 0;
     if :: k == A -> finished = update :: else fi;
     entered[t] = 0;
     d_step { n = 0; g = 0; b = 0; o = 0; old = 0; free1 = 0; free2 = 0 }
  od
}

#ifdef EMPTY
/* Removes all entries of these slots, in one store. */
inline vacate(from, slots) {
  i = from;
  do
  :: i == from + slots -> break
  :: else ->
     if
     :: live[i] != NONE -> gone[live[i]] = gone[live[i]] | VALUE_BIT(live[i], value[i]); remove(i, n)
     :: else
     fi;
     i++
  od;
  i = 0
}

inline empty_locked() {
#ifdef EMPTY_UNLOCKED
  g = current;
  b = BUCKET(g, k);
#else
#ifdef EMPTY_MOVED
  g = current;
  atomic { b = BUCKET(g, k); !locked[b] -> locked[b] = 1 };
#else
  lock(k);
#endif
#endif
#ifndef STALE_STAMP
  n = begun;
#endif
  atomic { vacate(IN_FIRST(b), FIRST) };
  o = second[b];
  if
  :: o -> /* Its slots are not used again. */
     atomic { vacate(IN_SECOND(o - 1), SECOND); second[b] = 0; filter[b] = 0 };
#ifdef FREE_SEGMENT
     segment_freed_by[o - 1] = ended
#else
     segment_freed_by[o - 1] = begun + 1
#endif
  :: else
  fi;
#ifndef EMPTY_UNLOCKED
  locked[b] = 0
#endif
}

#if FIRST == 1
#define LIVE(b) live[IN_FIRST(b)]
#else
#define LIVE(b) (live[IN_FIRST(b)] | live[IN_FIRST(b) + 1] << 2)
#endif
#ifdef SKIP_OTHER
#define COVERS_ALL (BITS(current) == 0)
#else
#define COVERS_ALL (BITS(g) == 0)
#endif

/* Clears the bucket of R, and that of A if it is another one. */
proctype clearer(byte t) {
  byte n, g, b, i, o, word, old, k = R;
  bool is_simple;
  enter(t);
  old = finished;
  do
  :: g = current;
     atomic {
       check_array(g);
       b = BUCKET(g, k);
       is_simple = !locked[b] && !moved[b] && second[b] == 0;
       word = LIVE(b)
     };
#ifndef STALE_STAMP
     n = begun;
#endif
     if
     :: atomic { is_simple && !locked[b] && !moved[b] && LIVE(b) == word -> vacate(IN_FIRST(b), FIRST) }
     :: !(is_simple && !locked[b] && !moved[b] && LIVE(b) == word) -> empty_locked()
     fi;
     if
     :: k == A || COVERS_ALL -> break
     :: else -> k = A
     fi
  od;
  atomic {
    assert(IS_GONE(R, 0));
    assert(old % 3 == 0 || IS_GONE(A, old) || started > old);
    entered[t] = 0;
    n = 0; g = 0; b = 0; o = 0; old = 0; word = 0; is_simple = 0; k = 0
  }
}
#endif

/* Looks for k in the slots from `from`, in one load of their word, and takes a reference. */
inline look(from, slots) {
  i = from;
  do
  :: i == from + slots -> break
  :: else ->
     if :: live[i] == k -> held[turn] = i + 1; found = 1; break :: else fi;
     i++
  od;
  i = 0
}

proctype reader() {
  byte n, g, b, i, o, k, turn, before, low, was_gone;
  bool found, may_be_later;
#ifdef KEPT
  enter(READER);
#endif
  do
  :: turn == TURNS -> break
  :: else ->
     if :: k = A :: k = R fi;
#ifndef KEPT
     enter(READER);
#endif
     atomic { before = (finished > low -> finished : low); was_gone = gone[k] };
     g = current;
     do
     :: atomic {
          check_array(g);
          b = BUCKET(g, k);
          if
#ifndef MOVED_LATE
          :: moved[b] -> g++
          :: else -> look(IN_FIRST(b), FIRST); break
#else
          :: true -> look(IN_FIRST(b), FIRST); break
#endif
          fi
        }
     od;
     if
     :: !found ->
        atomic { check_array(g); o = second[b]; may_be_later = o && (filter[b] & BIT(k)) };
        if
        :: may_be_later -> atomic { check_segment(o - 1); look(IN_SECOND(o - 1), SECOND) }
        :: else
        fi
     :: else
     fi;
#ifdef MOVED_LATE
     if
     :: !found && moved[b] -> g++; atomic { b = BUCKET(g, k); look(IN_FIRST(b), FIRST) }
     :: else
     fi;
#endif
     atomic {
       if
       :: k == R ->
          assert(found -> value[held[turn] - 1] == RESIDENT && !was_gone : gone[R])
       :: k == A && found ->
          low = value[held[turn] - 1];
          assert(low >= before && low <= started && low % 3 != 0 && !(was_gone & VALUE_BIT(A, low)))
       :: else -> /* Absent after each third update, before the first, and when it was cleared. */
          low = before;
          do
          :: low % 3 == 0 || IS_GONE(A, low) -> break
          :: else -> low++
          od;
          assert(low <= started)
       fi;
       turn++;
       n = 0; g = 0; b = 0; o = 0; found = 0; may_be_later = 0; before = 0; was_gone = 0
     };
#ifndef KEPT
     atomic { i = 0; do :: i == TURNS -> break :: else -> held[i] = 0; i++ od; i = 0 };
     entered[READER] = 0
#endif
  od;
#ifdef KEPT
  atomic { i = 0; do :: i == TURNS -> break :: else -> held[i] = 0; i++ od; i = 0 };
  entered[READER] = 0
#endif
}

/* Copies the entry of slot x to the bucket `to`. */
inline move_entry(x) {
  k = live[x];
  if
  :: k != NONE -> b = BUCKET((g + 1), k); search(b, k); assert(old == 255); put(b, k, value[x], 0)
  :: else
  fi
}

inline lock_from() {
#ifndef MOVE_UNLOCKED
  atomic { !locked[from] -> locked[from] = 1 };
#endif
#ifdef MOVED_FIRST
  moved[from] = 1
#else
  skip
#endif
}

inline copy_from() {
  x = IN_FIRST(from);
  do :: x == IN_FIRST(from) + FIRST -> break :: else -> move_entry(x); x++ od;
  if
  :: second[from] ->
     x = IN_SECOND(second[from] - 1);
     do :: x == IN_SECOND(second[from]) -> break :: else -> move_entry(x); x++ od
  :: else
  fi
}

inline leave_from() {
  atomic { moved[from] = 1; locked[from] = 0 };
#ifdef CLEAR
  if
  :: second[from] ->
     d_step {
       i = IN_SECOND(second[from] - 1);
       do :: i == IN_SECOND(second[from]) -> break :: else -> live[i] = NONE; i++ od;
       i = 0
     }
  :: else
  fi
#else
  skip
#endif
}

/* Moves a bucket to several of a larger array. (Table::split) */
inline split() {
  lock_from();
  copy_from();
  leave_from()
}

/* Moves several buckets to one of a smaller array. (Table::merge) */
inline merge() {
  to = (g + 1) * 4 + ((from - g * 4) >> (BITS(g) - BITS(g + 1)));
  end = from + (1 << (BITS(g) - BITS(g + 1)));
#ifdef MERGE_UNLOCKED
  do
  :: from == end -> break
  :: else -> lock_from(); copy_from(); leave_from(); from++
  od
#else
  do
  :: from == end -> break
  :: else -> lock_from(); copy_from(); from++
  od;
#ifndef MERGE_OPEN
  locked[to] = 1;
#endif
  from = end - (1 << (BITS(g) - BITS(g + 1)));
  do
  :: from == end -> break
  :: else -> leave_from(); from++
  od;
#ifndef MERGE_OPEN
  locked[to] = 0
#endif
#endif
}

/* Retires array g, and the second segments of its buckets. */
inline retire_array() {
  d_step {
#ifdef FREE_ARRAY
    array_freed_by[g] = ended;
#else
    array_freed_by[g] = begun + 1;
#endif
    i = g * 4;
    do
    :: i == g * 4 + 4 -> break
    :: else -> if :: second[i] -> segment_freed_by[second[i] - 1] = array_freed_by[g] :: else fi; i++
    od;
    i = 0
  }
}

proctype resizer() {
  byte g, b, i, j, o, m, k, x, from, to, end, old, free1, free2;
  do
  :: g == GENS - 1 -> break
  :: else ->
#ifdef PUBLISH_FIRST
     current = g + 1;
#endif
     from = g * 4;
     do
     :: from == g * 4 + (1 << BITS(g)) -> break
     :: from != g * 4 + (1 << BITS(g)) && BITS(g + 1) >= BITS(g) -> split(); from++
     :: from != g * 4 + (1 << BITS(g)) && BITS(g + 1) < BITS(g) -> merge()
     od;
     current = g + 1;
     retire_array();
     g++;
     d_step { b = 0; o = 0; k = 0; x = 0; from = 0; to = 0; end = 0; old = 0; free1 = 0; free2 = 0 }
  od
}

/* Begins grace periods, and ends each when it has seen every thread outside of older sections. */
proctype driver() {
  byte t;
  do
  :: begun == GRACES + 1 -> break
  :: else ->
     begun = begun + 1;
     t = 0;
     do
     :: t == 3 -> break
     :: atomic { t < 3 && (entered[t] == 0 || entered[t] >= begun) -> t++ }
     od;
     ended = begun
  od
}

/* Checks at the end that k is in its bucket, once, if it is to be there, and nowhere else. */
inline check_key(k, is_present) {
  b = BUCKET(current, k);
  count = 0;
  i = 0;
  do
  :: i == SLOTS -> break
  :: else ->
     if
     :: live[i] == k && i >= IN_FIRST(b) && i < IN_FIRST(b) + FIRST -> count++
     :: live[i] == k && second[b] && i >= IN_SECOND(second[b] - 1) && i < IN_SECOND(second[b]) -> count++
     :: else
     fi;
     i++
  od;
  assert(count == (is_present -> 1 : 0))
}

init {
  byte b, i, count;
  atomic {
    live[IN_FIRST(BUCKET(0, R))] = R;
    value[IN_FIRST(BUCKET(0, R))] = RESIDENT;
    run updater(1, A, OPS);
#ifdef EMPTY
    run clearer(2);
#else
    run updater(2, C, OPSC);
#endif
    run reader();
    run resizer();
    run driver()
  };
  d_step {
    _nr_pr == 1 ->
    check_key(R, !IS_GONE(R, 0));
    check_key(A, OPS % 3 != 0 && !IS_GONE(A, OPS));
#ifndef EMPTY
    check_key(C, OPSC % 2 != 0)
#endif
  }
}
