/* A table of a few buckets while it is resized (crates/table/src: resize, group, lookup). Each
 * access to shared memory is a step of its own. Memory is sequentially consistent: loom checks what
 * weaker orders do.
 *
 * The resizer grows the table -DGROWS=n times and shrinks it -DSHRINKS=n times, by the factor 2,
 * in every possible order. It cuts the chains at any time after their grace period, or the
 * table grows again first. More switches:
 *
 *   -DSTART=n     the first array has 2^n buckets
 *   -DBITS=n      the finest array has 2^n buckets, at most 8
 *   -DSTEP=2      the factor is 4
 *   -DCHUNK=n     a cut or a join keeps a lock for n heads of the finer array, not the whole group
 *   -DSOLE        one resident only: summaries often show that all links go to one finer bucket
 *   -DUPDATERS=2  one updater for each of two keys, not one updater for either of them
 *   -DSAME_KEY    with two updaters: both update the same key, either of the two
 *   -DLOOKS=n     the reader looks up a key n times; 0 for no reader
 *   -DITERATE     an iteration, instead of the reader
 *   -DCLEAR=n     n threads that clear the table; 2 are instead of the updater
 *
 * A place is a hash, and has one key. Only a clear removes residents. An updater inserts its key if it
 * is absent, and removes or replaces it if it is there. Each update has a node of its own: no node
 * is used again after it was freed.
 *
 * Checked:
 *   - Lookups find residents (T1).
 *   - An iteration sees residents once, and no key twice. It sees another key if that is there during all of the
 *     iteration, and not if it is absent during all of it (T7).
 *   - Some order of a key's updates explains what lookups of the key return (T3).
 *   - No thread waits for ever, and an updater starts again only if the resizer has gone on (T4).
 *   - No thread accesses a node or an array that was freed (T8).
 *   - A search under the lock finds what is there.
 *   - A clear removes all that was there when it began, and no node is retired twice.
 *   - At the end each bucket has exactly its nodes, and each head is settled.
 *
 * Each of these switches leaves out or misplaces one step, and in a run of runs.txt a check fails:
 *
 *   SKIP_CUT_WAIT        a cut does not wait for readers
 *   CUT_AFTER_OLD_GRACE  a second growth does not restart the grace period of the cut
 *   SKIP_RETIRE_WAIT     replaced arrays are freed at once
 *   SKIP_NODE_WAIT       removed nodes are freed at once
 *   RETIRE_FIRST         a replaced array is retired while the base array still leads to it
 *   OLDER_FIRST          updates change older arrays before newer ones
 *   FORGET_NEXT          updates do not maintain the array that is being filled
 *   UNANNOUNCED          a link is reachable by another one before its summary bit is set
 *   MARK_UNSEEN          a head is marked although it may have changed since it was read
 *   CUT_NOTHING          a cut cuts no chain
 *   PARTIAL_SUMMARY      a cut clears a summary before it makes it exact
 *   REST_UNSET           a cut leaves the base head at the first chunk
 *   FORGET_LATER         a join does not link a chunk to those that were joined before it
 *   STALE_ENTRY          searches start at finer heads while the table shrinks, too
 *   CUT_ENTRY            searches start at heads that were cut off, too
 *   BLIND_AFTER          searches end by the heads of the array that is being filled
 *   UNCHECKED_FOLLOWER   no check, with the base head locked, that the head still follows it
 *   UNCHECKED_OWNER      no check that the base head does not follow another one itself
 *   IGNORE_MOVED         no check that the group was not cut
 *   SEE_AGAIN            an iteration does not skip links that it has visited
 *   RUN_ON               an iteration goes on at the end of a bucket, along the chain
 *   EMPTY_AT_ONCE        a clear empties a bucket at once during a resize, too
 *   EMPTY_UNLOCKED       a clear empties a bucket without its lock
 *   REMOVE_OTHER         a clear removes what has the place of a link that it saw, and retires that link
 *   SKIP_OTHER           a clear goes on behind the bucket of the published array, whichever it has cleared
 */
#ifndef START
#define START 0
#endif
#ifndef BITS
#define BITS 2
#endif
#ifndef GROWS
#define GROWS 0
#endif
#ifndef SHRINKS
#define SHRINKS 0
#endif
#ifndef STEP
#define STEP 1
#endif
#ifndef CHUNK
#define CHUNK 8
#endif
#ifndef UPDATERS
#define UPDATERS 1
#endif
#ifndef LOOKS
#define LOOKS 2
#endif
#ifndef CLEAR
#define CLEAR 0
#endif

#define PLACE_BITS 3
#define PLACES 8
/* Buckets of the finest array. */
#if BITS == 1
#define HEADS 2
#elif BITS == 2
#define HEADS 4
#else
#define HEADS 8
#endif
#define ARRAYS (1 + GROWS + SHRINKS)
#define NIL 255

#ifdef SAME_KEY
#define UPDATES 2
#else
#define UPDATES 1
#endif
#if UPDATES == 2 || CLEAR
#define NODES 24
#else
#define NODES 16
#endif
/* How often a key may change: a clear may remove it, and what an update inserts after that. */
#if CLEAR
#define CHANGES 3
#else
#define CHANGES 2
#endif

/* Of 4 buckets, one has UPDATED_1 alone, and one has UPDATED_2 before RESIDENT_2. */
#define UPDATED_1 2
#define UPDATED_2 4
#define RESIDENT_2 5
#ifdef SOLE
#define RESIDENT_1 RESIDENT_2
#else
#define RESIDENT_1 1
#endif

#define PLACE(node) ((node) % PLACES)

/* A head is one word: each step reads or writes it as a whole. */
typedef Head {
  byte first;
  byte summary; /* a bit for each value of the two hash bits that follow those of the bucket */
  bit locked;
  bit follows; /* not lockable: the head of the base array is the lock */
  bit finer;   /* the finer heads that cover this bucket are filled, and are kept right */
  bit moved    /* of a base head: its group was cut */
}
typedef Array {
  Head head[HEADS];
  byte bits;
  byte base;
  byte finer;
  byte awaited; /* once it is retired: the threads that its grace period waits for */
  bit retired;
  bit freed
}
Array array[ARRAYS];
byte published;
byte next[NODES];
bit freed[NODES];

#define BUCKET(a, place) ((place) >> (PLACE_BITS - array[a].bits))
#define HEAD(a, place) array[a].head[BUCKET(a, place)]
#define SHARES_BUCKET(a, p, q) (BUCKET(a, p) == BUCKET(a, q))
#define KIND(a, place) ((((place) << array[a].bits) >> (PLACE_BITS - 2)) & 3)
#define SUMMARY_BIT(a, place) (1 << KIND(a, place))
#define SHARES_SUMMARY(a, p, q) (SHARES_BUCKET(a, p, q) && KIND(a, p) == KIND(a, q))

/* A grace period waits for the threads that were in a section when it began. What was retired is
 * freed as soon as its grace period has passed: no later moment shows more faults. */
#define READER 0
#define UPDATER_1 1
#define UPDATER_2 2
byte inside;
byte awaited_by_cut;
/* The number of nodes that a thread may retire. */
#if CLEAR
#define RETIRES 4
#else
#define RETIRES 1
#endif
byte retired_node[2 * RETIRES], awaited_by_node[2 * RETIRES];
hidden byte i;

inline free_awaited() {
  i = 0;
  do
  :: i < ARRAYS -> array[i].freed = array[i].retired && array[i].awaited == 0; i++
  :: else -> break
  od;
  i = 0;
  do
  :: i < 2 * RETIRES && retired_node[i] != NIL && awaited_by_node[i] == 0 -> freed[retired_node[i]] = 1; i++
  :: i < 2 * RETIRES && !(retired_node[i] != NIL && awaited_by_node[i] == 0) -> i++
  :: else -> break
  od;
  i = 0
}

inline enter(me) { inside = inside | 1 << me }
inline leave(me) {
  inside = inside & ~(1 << me);
  awaited_by_cut = awaited_by_cut & inside;
  i = 0;
  do
  :: i < 2 * RETIRES -> awaited_by_node[i] = awaited_by_node[i] & inside; i++
  :: else -> break
  od;
  i = 0;
  do
  :: i < ARRAYS -> array[i].awaited = array[i].awaited & inside; i++
  :: else -> break
  od;
  free_awaited()
}

inline retire_array(a) {
  array[a].retired = 1;
#ifndef SKIP_RETIRE_WAIT
  array[a].awaited = inside;
#endif
  free_awaited()
}

/* `nth` counts the nodes that this thread has retired. */
inline retire_node(me, nth, node) {
  i = 0;
  do
  :: i < 2 * RETIRES -> assert(retired_node[i] != node); i++
  :: else -> break
  od;
  retired_node[(me - 1) * RETIRES + nth] = node;
#ifndef SKIP_NODE_WAIT
  awaited_by_node[(me - 1) * RETIRES + nth] = inside;
#endif
  free_awaited()
}

/* The nodes of a key: before its first update, and after each update; NIL for none. A lookup that
 * begins now may find those from `known` to `begun`. */
typedef History { byte node[1 + CHANGES]; byte known; byte begun }
History history[PLACES];

/* A lookup that began when node number `from` was known has found `seen`. */
inline explain(key, from, seen) {
  do
  :: from < history[key].begun && seen != history[key].node[from] -> from++
  :: else -> break
  od;
  assert(seen == history[key].node[from]);
  history[key].known = (from > history[key].known -> from : history[key].known)
}

/* Looks up a key several times, in one section or in several. A later lookup must not miss what
 * an earlier one has found. */
proctype reader(byte place) {
  byte a, link, looks, since;

look:
  atomic { enter(READER); since = history[place].known; a = published };
  d_step { /* The head is loaded once. No bit in the summary, no walk. */
    assert(!array[a].freed);
    link = (HEAD(a, place).summary & SUMMARY_BIT(a, place) -> HEAD(a, place).first : NIL);
    a = 0
  };
  do
  :: atomic { link != NIL && PLACE(link) < place -> assert(!freed[link]); link = next[link] }
  :: atomic {
       link == NIL || PLACE(link) >= place ->
       assert(link == NIL || !freed[link]);
       link = (link != NIL && PLACE(link) == place -> link : NIL);
       explain(place, since, link);
       link = 0; since = 0;
       looks++;
       break
     }
  od;
  if
  :: looks < LOOKS -> goto look
  :: d_step { looks < LOOKS -> leave(READER) }; goto look
  :: d_step { looks == LOOKS -> leave(READER) }
  fi
}

#ifdef SEE_AGAIN
#define WAS_VISITED(place) 0
#else
#define WAS_VISITED(place) ((place) < from)
#endif
#ifdef RUN_ON
#define IS_IN_BUCKET(place) 1
#else
#define IS_IN_BUCKET(place) ((place) < end)
#endif

/* Visits all links, bucket by bucket, in the order of the places. Each bucket is that of the array which is published
 * then, so it may begin with links that were visited. (Iter::next) */
proctype iterator(byte me; byte key) {
  byte a, link, end, from = 0;
  byte seen; /* a bit for each place */
  byte since; /* the number of updates of the key that had begun, NIL while one had not ended */

  atomic { enter(me); since = (history[key].known == history[key].begun -> history[key].begun : NIL) };
  do
  :: from < PLACES ->
    a = published;
    d_step {
      assert(!array[a].freed);
      link = HEAD(a, from).first;
      end = (BUCKET(a, from) + 1) << (PLACE_BITS - array[a].bits);
      a = 0
    };
    do
    :: d_step { link != NIL && IS_IN_BUCKET(PLACE(link)) ->
         assert(!freed[link]);
         if
         :: !WAS_VISITED(PLACE(link)) ->
           assert(!(seen & 1 << PLACE(link)));
           seen = seen | 1 << PLACE(link)
         :: else
         fi;
         link = next[link]
       }
    :: d_step { !(link != NIL && IS_IN_BUCKET(PLACE(link))) ->
         assert(link == NIL || !freed[link]); from = end; link = 0; end = 0 };
       break
    od
  :: else -> break
  od;
  assert(seen & 1 << RESIDENT_1 && seen & 1 << RESIDENT_2);
  d_step {
    assert(history[key].begun != since || (seen >> key & 1) == (history[key].node[since] != NIL));
    since = 0;
    seen = 0;
    from = 0;
    leave(me)
  }
}

/* Makes the head of array `a` right for the updater's link. (Place::updated) */
inline update(a) {
  assert(!array[a].freed);
  if
  :: before == NIL || !SHARES_BUCKET(a, PLACE(before), place) ->
    HEAD(a, place).first = (link != NIL && SHARES_BUCKET(a, PLACE(link), place) -> link : NIL)
  :: else
  fi;
  if
  :: inserts -> HEAD(a, place).summary = HEAD(a, place).summary | SUMMARY_BIT(a, place)
  :: !inserts && link == after && !(before != NIL && SHARES_SUMMARY(a, PLACE(before), place)) &&
     !(after != NIL && SHARES_SUMMARY(a, PLACE(after), place)) ->
    HEAD(a, place).summary = HEAD(a, place).summary & ~SUMMARY_BIT(a, place)
  :: else
  fi
}

/* Sets the summary bit of a link that is about to be reachable by another one. */
inline announce(a) {
  if
  :: a != NIL && !(HEAD(a, place).summary & SUMMARY_BIT(a, place)) ->
    d_step { assert(!array[a].freed); HEAD(a, place).summary = HEAD(a, place).summary | SUMMARY_BIT(a, place) }
  :: else
  fi
}


inline set_next() {
  if
  :: before != NIL -> d_step { assert(!freed[before]); next[before] = link }
  :: else
  fi
}

inline update_kept(a) {
  if
  :: a != NIL -> d_step { update(a) }
  :: else
  fi
}

#ifdef IGNORE_MOVED
#define IS_MOVED(head) 0
#else
#define IS_MOVED(head) head.moved
#endif
#ifdef UNCHECKED_OWNER
#define IS_FOLLOWER(head) 0
#else
#define IS_FOLLOWER(head) head.follows
#endif
#define IS_NO_OWNER (IS_MOVED(HEAD(base, place)) || IS_FOLLOWER(HEAD(base, place)))

#ifdef UNCHECKED_FOLLOWER
#define STILL_FOLLOWS 1
#else
#define STILL_FOLLOWS HEAD(a, place).follows
#endif

/* An updater that starts again finds something else than before. */
#define LEADS_FURTHER (published != a || !HEAD(a, place).follows || array[a].base != base)

#ifdef CUT_ENTRY
#define IS_ENTRY(head) (head.first != NIL)
#else
#define IS_ENTRY(head) (head.first != NIL && head.follows)
#endif

#ifdef BLIND_AFTER
#define AFTER (far != NIL -> far : near)
#else
#define AFTER near
#endif

/* Under the lock no other thread changes the chain, or which heads are kept right: one step.
 * (Core::locked, Group::search) */
inline search() {
  near = NIL;
  far = NIL;
  grows = HEAD(base, place).finer;
  if
  :: grows ->
    near = array[base].finer;
    assert(!array[near].freed);
    if
#ifndef FORGET_NEXT
    :: HEAD(near, place).finer -> far = array[near].finer
#endif
    :: else
    fi
  :: !grows && a != base -> near = a
  :: else
  fi;

  before = NIL;
  found = HEAD(base, place).first;
  if
#ifndef STALE_ENTRY
  :: grows ->
#else
  :: near != NIL ->
#endif
    finest = (far != NIL -> far : near);
    assert(!array[finest].freed);
    entry = BUCKET(finest, place);
    do
    :: entry > BUCKET(base, place) << (array[finest].bits - array[base].bits) ->
      entry--;
      if
      :: IS_ENTRY(array[finest].head[entry]) -> found = array[finest].head[entry].first; break
      :: else
      fi
    :: else -> break
    od
  :: else
  fi;
  do
  :: found != NIL && PLACE(found) < place -> assert(!freed[found]); before = found; found = next[found]
  :: else -> break
  od;
  if
  :: found == NIL || PLACE(found) > place -> after = found; found = NIL; inserts = 1
  :: else -> assert(!freed[found]); after = next[found]; inserts = 0
  fi;
  link = place + PLACES * (history[place].begun + 1);
  assert(found == history[place].node[history[place].begun]);
  /* If no summary bit up to that of the place is set, the place is the first. (Word::is_after) */
  assert(HEAD(base, place).summary & (2 * SUMMARY_BIT(base, place) - 1) || (before == NIL && found == NIL));
  /* The heads alone may show what comes after the place. (Level::first_after) */
  if
  :: grows ->
    finest = AFTER;
    if
    :: HEAD(finest, place).first == NIL ->
      entry = BUCKET(finest, place) + 1;
      do
      :: entry % (1 << (array[finest].bits - array[base].bits)) != 0 && array[finest].head[entry].first == NIL -> entry++
      :: else -> break
      od;
      assert(found == NIL &&
        after == (entry % (1 << (array[finest].bits - array[base].bits)) != 0 -> array[finest].head[entry].first : NIL))
    :: else ->
      assert(HEAD(finest, place).summary & (2 * SUMMARY_BIT(finest, place) - 1) ||
        (found == NIL && after == HEAD(finest, place).first))
    fi
  :: else
  fi;
  entry = 0;
  finest = 0
}

/* Locks the chain of `place`. The caller has the label `look` here. (TableInner::lock_chain) */
inline lock(me) {
  atomic { enter(me); a = published };
  if
  :: d_step { !HEAD(a, place).locked && !HEAD(a, place).follows ->
       /* A cut waits for those that have loaded an older array. */
       assert(!array[a].freed && !HEAD(a, place).moved);
       HEAD(a, place).locked = 1; base = a }
  :: HEAD(a, place).follows ->
    d_step {
      assert(!array[a].freed);
      base = array[a].base;
      assert(base != NIL || LEADS_FURTHER)
    };
    if
    :: base == NIL -> goto look
    :: d_step { base != NIL && !IS_NO_OWNER && !HEAD(base, place).locked && STILL_FOLLOWS ->
         assert(!array[base].freed); HEAD(base, place).locked = 1 }
    :: atomic { base != NIL && IS_NO_OWNER -> assert(LEADS_FURTHER); goto look }
      /* Locked, and unlocked again. */
    :: base != NIL && !IS_NO_OWNER && !HEAD(base, place).locked && !STILL_FOLLOWS -> goto look
    fi
  fi
}

/* Makes everything lead to `link`, except for the base head, whose store also unlocks.
 * (LockedGroup::splice) */
inline splice() {
#ifndef UNANNOUNCED
  if
  :: inserts && before != NIL -> announce(base); announce(near); announce(far)
  :: else
  fi;
#endif
  if
#ifdef OLDER_FIRST
  :: near != NIL && !grows ->
#else
  :: near != NIL && grows ->
#endif
    update_kept(far);
    update_kept(near);
    set_next()
  :: near == NIL -> set_next()
  :: else ->
    d_step { update(base) };
    set_next();
    update_kept(near);
    update_kept(far)
  fi
}

/* Variables that are not used any more have the same value in all states. */
inline forget_search() { a = 0; base = 0; near = 0; far = 0; before = 0; found = 0; after = 0; link = 0; inserts = 0; grows = 0 }

proctype updater(byte me; byte place) {
  byte a; /* the array that was published when it was loaded */
  byte base; /* the one whose head is the lock */
  byte near, far; /* the finer arrays to keep right; `far` is the newer one */
  byte finest, entry, before, found, after, link;
  bit inserts, grows;

look:
  lock(me);
  d_step { search() };
  if
  :: !inserts -> link = after /* remove */
  :: skip /* insert or replace */
  fi;
  d_step {
    history[place].begun++;
    if
    :: link != after -> next[link] = after; history[place].node[history[place].begun] = link
    :: else -> history[place].node[history[place].begun] = NIL
    fi
  };
  splice();
  d_step {
    update(base);
    HEAD(base, place).locked = 0;
    history[place].known = history[place].begun;
    leave(me);
    if
    :: found != NIL -> retire_node(me, 0, found)
    :: else
    fi;
    forget_search()
  }
}

#if CLEAR
#define END_OF_BUCKET(a, place) ((BUCKET(a, place) + 1) << (PLACE_BITS - array[a].bits))
#ifdef EMPTY_AT_ONCE
#define IS_ALONE 1
#else
#define IS_ALONE (!HEAD(base, place).finer && base == a)
#endif
#ifdef REMOVE_OTHER
#define IS_SEEN (found != NIL)
#else
#define IS_SEEN (found == seen)
#endif

#define IS_GONE(place) (history[place].node[history[place].begun] == NIL)

/* Retires the link that was unlinked, and goes on to the next one. */
inline retire_seen(me) {
  assert(!freed[seen]);
  after = next[seen];
  retire_node(me, retired, seen);
  retired++;
  seen = after;
  after = 0
}

/* Finds the first link that was not visited, in the bucket of `from`, or goes on to the next bucket.
 * (Iter::next) */
inline find_next() {
  a = published;
  d_step {
    assert(!array[a].freed);
    seen = HEAD(a, from).first;
    end = END_OF_BUCKET(a, from);
    a = 0
  };
  do
  :: d_step { seen != NIL && PLACE(seen) < from -> assert(!freed[seen]); seen = next[seen] }
  :: d_step { seen == NIL || PLACE(seen) >= from ->
       assert(seen == NIL || !freed[seen]);
       if
       :: seen != NIL && PLACE(seen) < end -> place = PLACE(seen)
       :: else -> from = end; seen = NIL
       fi;
       end = 0
     };
     break
  od
}

/* Empties a bucket by one store. (LockedGroup::unlink_all) */
inline empty_bucket() {
  seen = HEAD(base, place).first;
  link = seen;
  do
  :: link != NIL ->
    assert(!freed[link] && history[PLACE(link)].node[history[PLACE(link)].begun] == link);
    history[PLACE(link)].begun++;
    history[PLACE(link)].node[history[PLACE(link)].begun] = NIL;
    history[PLACE(link)].known = history[PLACE(link)].begun;
    link = next[link]
  :: else -> break
  od;
  link = 0;
  HEAD(base, place).first = NIL;
  HEAD(base, place).summary = 0;
  HEAD(base, place).locked = 0;
  from = END_OF_BUCKET(base, place);
  a = 0;
  base = 0
}

/* Removes the link from its chain, whose lock is held, if it is still there. */
inline remove_seen(me) {
  d_step { search(); link = after };
  if
  :: IS_SEEN ->
    d_step {
      history[place].begun++;
      history[place].node[history[place].begun] = NIL
    };
    splice();
    d_step {
      update(base);
      HEAD(base, place).locked = 0;
      history[place].known = history[place].begun;
      retire_node(me, retired, seen);
      retired++
    }
  :: else -> HEAD(base, place).locked = 0
  fi
}

/* Finds a link, clears its bucket, and goes on behind that. (Table::clear) */
proctype clearer(byte me; byte updated) {
  byte a, base, near, far, finest, entry, before, found, after, link, place;
  bit inserts, grows;
  byte from, end; /* the places before `from` have been cleared */
  byte seen, next_seen; /* the link that the clear has come to, and what came after it then */
  bit singly; /* links are removed one by one until `from` */
  byte retired;
  byte old; /* the node of the updated key when the clear began */

  atomic { enter(me); old = history[updated].node[history[updated].known] };

look_further:
  if
  :: !singly && from == PLACES -> goto finish
  :: !singly && from < PLACES ->
    find_next();
    if
    :: seen == NIL -> goto look_further
    :: seen != NIL
    fi
  :: singly -> /* The chain may begin in an earlier bucket, and go on in later ones. */
    if
    :: d_step { seen != NIL && PLACE(seen) < place -> assert(!freed[seen]); seen = next[seen] };
      goto look_further
    :: d_step { seen == NIL || PLACE(seen) >= from -> assert(seen == NIL || !freed[seen]); seen = 0; singly = 0 };
      goto look_further
    :: d_step { seen != NIL && PLACE(seen) >= place && PLACE(seen) < from ->
         assert(!freed[seen]); place = PLACE(seen); next_seen = next[seen] }
    fi
  fi;
#ifdef EMPTY_UNLOCKED
  a = published;
  base = a;
#else
look:
  lock(me);
#endif
  if
  :: singly -> remove_seen(me); d_step { seen = next_seen; next_seen = 0; forget_search() }
  :: !singly && IS_ALONE ->
    d_step { empty_bucket() };
    do
    :: d_step { seen != NIL -> retire_seen(me) }
    :: seen == NIL -> break
#ifdef SKIP_OTHER
    od;
    from = END_OF_BUCKET(published, place)
#else
    od
#endif
  :: !singly && !IS_ALONE ->
    HEAD(base, place).locked = 0;
    a = published;
    d_step {
      assert(!array[a].freed);
      seen = HEAD(a, place).first;
      from = END_OF_BUCKET(a, place);
      singly = 1;
      a = 0; base = 0
    }
  fi;
  goto look_further;

finish:
  atomic {
    assert(IS_GONE(RESIDENT_1) && IS_GONE(RESIDENT_2));
    assert(old == NIL || history[updated].node[history[updated].begun] != old);
    leave(me);
    from = 0; place = 0; retired = 0; old = 0; seen = 0
  }
}
#endif

inline new_array(a, size) {
  array[a].bits = size;
  array[a].base = NIL;
  array[a].finer = NIL;
  bucket = 0;
  do
  :: bucket < HEADS ->
    array[a].head[bucket].first = NIL;
    bucket++
  :: else -> break
  od;
  bucket = 0
}

inline follow_all(a) {
  do
  :: bucket < 1 << array[a].bits -> array[a].head[bucket].follows = 1; bucket++
  :: else -> break
  od;
  bucket = 0
}

/* The bucket of array `n` that all links of `bucket` go to, if the summary shows it, or else NIL.
 * Any bucket if there are no links. (Word::sole_part) */
#define PART_BITS (STEP == 1 -> 3 << (2 * part) : 1 << part)
inline find_sole_part() {
  part = 0;
  do
  :: part < 1 << STEP && bits & ~PART_BITS -> part++
  :: else -> break
  od;
  part = (part == 1 << STEP -> NIL : bucket << STEP | part)
}

#ifdef MARK_UNSEEN
#define IS_UNCHANGED(head) 1
#else
#define IS_UNCHANGED(head) (head.first == link && head.summary == bits)
#endif

/* Fills the heads of array `n` that `bucket` of array `p` covers: each leads into the chain. No thread
 * looks at them before the head of `p` is marked, so stores to them need no step of their own. */
inline fill() {
  part = NIL;
  if
  :: p == base ->
    d_step {
      link = array[p].head[bucket].first;
      bits = array[p].head[bucket].summary;
      find_sole_part();
      part = (array[p].head[bucket].locked -> NIL : part);
      if
      :: part != NIL -> /* The places of the links are not known: all bits. */
        array[n].head[part].first = link;
        array[n].head[part].summary = (bits -> 15 : 0)
      :: else
      fi
    };
    if
    :: part != NIL ->
      d_step {
        if
        :: !array[p].head[bucket].locked && IS_UNCHANGED(array[p].head[bucket]) -> array[p].head[bucket].finer = 1
        :: else ->
          array[n].head[part].first = NIL;
          array[n].head[part].summary = 0;
          part = NIL
        fi
      }
    :: else
    fi
  :: else
  fi;
  if
  :: d_step { part == NIL && !array[base].head[bucket >> (array[p].bits - array[base].bits)].locked ->
       link = array[p].head[bucket].first;
       bits = array[p].head[bucket].summary;
       find_sole_part();
       if
       :: p != base && part != NIL ->
         array[n].head[part].first = link;
         array[n].head[part].summary = (bits -> 15 : 0);
         link = NIL
       :: else
       fi;
       do
       :: link != NIL && BUCKET(p, PLACE(link)) == bucket ->
         if
         :: HEAD(n, PLACE(link)).first == NIL -> HEAD(n, PLACE(link)).first = link
         :: else
         fi;
         HEAD(n, PLACE(link)).summary = HEAD(n, PLACE(link)).summary | SUMMARY_BIT(n, PLACE(link));
         link = next[link]
       :: else -> break
       od;
       array[p].head[bucket].finer = 1
     }
  :: part != NIL
  fi;
  d_step { link = 0; bits = 0; part = 0 }
}

inline retire_replaced() {
  if
  :: p != base && !array[p].retired -> retire_array(p)
  :: else
  fi
}

inline grow() {
  d_step {
    p = published;
    n = used;
    used++;
    new_array(n, array[p].bits + STEP);
    follow_all(n);
    array[n].base = base;
    array[p].finer = n
  };
  do
  :: bucket < 1 << array[p].bits -> fill(); bucket++
  :: else -> break
  od;
  published = n;
#ifdef RETIRE_FIRST
  d_step { retire_replaced() };
#endif
  array[base].finer = n;
  d_step {
    retire_replaced();
#ifdef CUT_AFTER_OLD_GRACE
    if
    :: p == base -> awaited_by_cut = inside
    :: else
    fi;
#else
    awaited_by_cut = inside;
#endif
    bucket = 0; p = 0; n = 0
  }
}

#define GROUP_BITS (array[n].bits - array[base].bits)
#define GROUP_SIZE (1 << GROUP_BITS)
#define BASE_HEAD array[base].head[bucket >> GROUP_BITS]
#define CHUNK_END ((bucket / CHUNK + 1) * CHUNK)
#define END (CHUNK < GROUP_SIZE -> CHUNK_END : (bucket / GROUP_SIZE + 1) * GROUP_SIZE)

/* The summary shows that all links of the group are in one bucket: nothing has to be cut. */
#define WITHIN(mask) !(BASE_HEAD.summary & ~(mask))
#define NEEDS_NO_CUT (GROUP_BITS == 1 -> WITHIN(3) || WITHIN(12) : \
  GROUP_BITS == 2 && (WITHIN(1) || WITHIN(2) || WITHIN(4) || WITHIN(8)))

/* Cuts the chain behind the links of bucket `b`, and makes the summary exact by one store. `link`
 * is the first link that was not cut off before. */
inline cut_one(b) {
  d_step {
    last = NIL;
    bits = 0;
    do
    :: link != NIL && BUCKET(n, PLACE(link)) == b ->
      bits = bits | SUMMARY_BIT(n, PLACE(link));
      last = link;
      link = next[link]
    :: else -> break
    od
  };
  if
  :: last != NIL ->
#ifndef CUT_NOTHING
    next[last] = NIL;
#endif
#ifdef PARTIAL_SUMMARY
    array[n].head[b].summary = 0;
#endif
    array[n].head[b].summary = bits
  :: else
  fi
}

inline cut() {
  n = published;
  do
  :: bucket < 1 << array[n].bits ->
    d_step { !BASE_HEAD.locked -> BASE_HEAD.locked = 1; link = BASE_HEAD.first; end = END; part = bucket };
    if
    :: end - bucket == GROUP_SIZE && NEEDS_NO_CUT -> link = NIL
    :: skip
    fi;
    do
    :: part < end -> cut_one(part); part++
    :: else -> break
    od;
    do
    :: bucket < end -> array[n].head[bucket].follows = 0; bucket++
    :: else -> break
    od;
    atomic { skip; d_step {
      bucket--;
#ifndef REST_UNSET
      BASE_HEAD.first = link;
#endif
      if
      :: end % GROUP_SIZE == 0 -> BASE_HEAD.moved = 1; BASE_HEAD.finer = 0; BASE_HEAD.first = NIL; BASE_HEAD.summary = 0
      :: else
      fi;
      BASE_HEAD.locked = 0;
      bucket++;
      link = 0; last = 0; bits = 0; part = 0
    } }
  :: else -> break
  od;
  array[n].base = NIL;
  d_step { retire_array(base); base = n; bucket = 0; end = 0; n = 0 }
}

/* Appends the chain of bucket `part` to those of the chunk that are joined already. */
inline join_one() {
  link = array[p].head[part].first;
  if
  :: link != NIL ->
    if
    :: last == NIL -> array[n].head[part >> STEP].first = link
    :: else -> next[last] = link
    fi;
    d_step {
      do
      :: link != NIL ->
        array[n].head[part >> STEP].summary = array[n].head[part >> STEP].summary | SUMMARY_BIT(n, PLACE(link));
        last = link;
        link = next[link]
      :: else -> break
      od;
      link = 0
    }
  :: else
  fi
}

#define JOIN_CHUNK (CHUNK < 1 << STEP -> CHUNK : 1 << STEP)

/* Chunk by chunk, the last one first: a chunk is linked in front of what is joined already. */
inline shrink() {
  d_step {
    p = published;
    n = used;
    used++;
    new_array(n, array[p].bits - STEP);
    array[p].base = n;
    bucket = 1 << array[p].bits
  };
  do
  :: bucket > 0 ->
    d_step { !array[n].head[(bucket - 1) >> STEP].locked -> array[n].head[(bucket - 1) >> STEP].locked = 1;
      end = bucket;
      bucket = bucket - JOIN_CHUNK;
      part = bucket };
    do
    :: atomic { part < end && !array[p].head[part].locked -> array[p].head[part].locked = 1; part++ }
    :: part == end -> break
    od;
    atomic { skip; d_step { part = bucket; last = NIL; bits = array[n].head[bucket >> STEP].first } };
    do
    :: part < end -> join_one(); part++
    :: else -> break
    od;
    if
#ifndef FORGET_LATER
    :: last != NIL && bits != NIL -> next[last] = bits
    :: else
#else
    :: skip
#endif
    fi;
    part = bucket;
    do
    :: atomic { part < end -> array[p].head[part].follows = 1; array[p].head[part].locked = 0; part++ }
    :: else -> break
    od;
    atomic { skip; d_step { array[n].head[bucket >> STEP].locked = 0; part = 0; link = 0; last = 0; bits = 0 } }
  :: else -> break
  od;
  atomic { skip; d_step { published = n; retire_array(p); base = n; end = 0; p = 0; n = 0 } }
}

#define MAY_GROW (grows < GROWS && array[published].bits + STEP <= BITS)
#define MAY_SHRINK (shrinks < SHRINKS && base == published && array[published].bits >= STEP)
#ifdef SKIP_CUT_WAIT
#define MAY_CUT (base != published)
#else
#define MAY_CUT (base != published && awaited_by_cut == 0)
#endif

proctype resizer() {
  byte base, used = 1, grows, shrinks, p, n, bucket, part, end, link, last, bits;
  do
  :: MAY_GROW -> grows++; grow()
  :: MAY_SHRINK -> shrinks++; shrink()
  :: MAY_CUT -> cut()
  :: base == published && !MAY_GROW && !MAY_SHRINK -> break
  od
}

#if UPDATERS == 2 && UPDATES == 1
#define IS_UPDATED(place) (place == UPDATED_1 || place == UPDATED_2)
#else
#define IS_UPDATED(place) (place == updated)
#endif

/* Appends `link` to the chain of its bucket in the first array. */
inline append(link) {
  if
  :: HEAD(0, PLACE(link)).first == NIL -> HEAD(0, PLACE(link)).first = link
  :: else -> next[last] = link
  fi;
  HEAD(0, PLACE(link)).summary = HEAD(0, PLACE(link)).summary | SUMMARY_BIT(0, PLACE(link));
  history[PLACE(link)].node[0] = link;
  last = link
}

/* At the end each place has what its history ends with, and no head leads to anything else. The
 * arrays that were replaced are freed. (Those that were never made have `finer` 0.) */
inline check(a) {
  assert(!array[a].freed && array[a].base == NIL);
  place = 0;
  do
  :: place < PLACES ->
    if
    :: place % (PLACES >> array[a].bits) == 0 ->
      assert(place == 0 || link == NIL);
      link = HEAD(a, place).first;
      assert(!HEAD(a, place).locked && !HEAD(a, place).follows && !HEAD(a, place).finer && !HEAD(a, place).moved)
    :: else
    fi;
    last = history[place].node[history[place].known];
    if
    :: last != NIL ->
      assert(link == last && !freed[link] && HEAD(a, place).summary & SUMMARY_BIT(a, place));
      link = next[link]
    :: else
    fi;
    place++
  :: else -> assert(link == NIL); break
  od;
  last = 0;
  do
  :: last < ARRAYS -> assert(last == a || array[last].freed || array[last].finer == 0); last++
  :: else -> break
  od
}

init {
  byte place, link, last, updated;
  d_step {
    place = 0;
    do
    :: place < NODES ->
      next[place] = NIL;
      if
      :: place < PLACES -> history[place].node[0] = NIL; history[place].node[1] = NIL; history[place].node[2] = NIL
#if CLEAR
        ; history[place].node[3] = NIL
#endif
      :: else
      fi;
      place++
    :: else -> break
    od;
    place = 0;
    do
    :: place < HEADS -> array[0].head[place].first = NIL; place++
    :: else -> break
    od;
    array[0].bits = START;
    array[0].base = NIL;
    array[0].finer = NIL;
    place = 0;
    do
    :: place < 2 * RETIRES -> retired_node[place] = NIL; place++
    :: else -> break
    od
  };
  atomic {
#if UPDATERS == 1 || UPDATES == 2
    if :: updated = UPDATED_1 :: updated = UPDATED_2 fi;
#endif
    place = 0;
    do
    :: place == RESIDENT_1 || place == RESIDENT_2 || IS_UPDATED(place) -> append(place); place++
    :: place < PLACES && place != RESIDENT_1 && place != RESIDENT_2 -> place++
    :: place == PLACES -> break
    od;
    run resizer();
#if CLEAR
    run clearer(UPDATER_2, updated);
#endif
#if CLEAR == 2
    run clearer(UPDATER_1, updated);
#elif UPDATERS == 2 && UPDATES == 1
    run updater(UPDATER_1, UPDATED_1);
    run updater(UPDATER_2, UPDATED_2);
#else
    run updater(UPDATER_1, updated);
#if UPDATES == 2
    run updater(UPDATER_2, updated);
#endif
#endif
#ifdef ITERATE
    run iterator(READER, updated)
#elif LOOKS
    if
    :: run reader(RESIDENT_1)
    :: run reader(RESIDENT_2)
#if UPDATERS == 2 && UPDATES == 1
    :: run reader(UPDATED_1)
    :: run reader(UPDATED_2)
#else
    :: run reader(updated)
#endif
    fi
#endif
  };
  _nr_pr == 1 -> d_step { check(published); last = 0 }
}
