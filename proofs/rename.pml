/* The move of an entry from one key to another, beside lookups and one update of either key. The table is at rest; memory accesses
 * are in sequentially consistent order.
 *
 * A record says which entry is on the move and under which of the two keys it is to be found: `target` and `moved`, which are one word.
 * Lookups ask it only after their walk has missed, so it must be registered before the entry is unlinked; and summaries must
 * keep the bits of both keys set meanwhile, or else there would be no walk.
 *
 *   -DONE_BUCKET   both keys are in one bucket
 *   -DBACKWARD     the new key's hash is the smaller one
 *   -DCOPY         the entry is replaced by another one, instead of being unlinked and linked in again
 *   -DUPDATE       beside it, one of the keys is updated
 *
 * Checked: what a lookup finds was there at some moment of the lookup, when at each moment the entry is under one key
 * (so who misses the old key finds the new one afterwards, and who finds the new one misses the old one); neighbours are
 * always found; nobody waits for ever; what is reclaimed is not looked at.
 *
 * Each wait can be left out, and then one of these fails: SKIP_UNLINK_WAIT, SKIP_LINK_WAIT, SKIP_RECORD_WAIT, SKIP_NODE_WAIT. So can
 * steps: UNANNOUNCED, CLEAR_OLD_BIT, LINK_BEFORE_FLIP, KEEP_TARGET.
 */
#define NIL 255
/* Places in the order of hashes; each bucket has a key of ours and a neighbour behind it. */
#define LOW 0
#define LOW_NEIGHBOUR 1
#define HIGH 2
#define HIGH_NEIGHBOUR 3
#ifdef BACKWARD
#define OLD HIGH
#define NEW LOW
#else
#define OLD LOW
#define NEW HIGH
#endif
#ifdef ONE_BUCKET
#define BUCKET(place) 0
#else
#define BUCKET(place) ((place) / 2)
#endif
#define BIT(place) (1 << (place))

/* Entries: the neighbours have the numbers of their places. */
#define ENTRY 0
#define COPY_OF_IT 2
#define ANOTHER 4
byte hash[5];
byte next[5];
bit freed[5];

typedef Head { byte first; byte summary; bit locked }
Head head[2];

/* The record. */
bit registered;
bit record_freed;
byte target = NIL;
bit moved;

/* Grace periods: a waiter waits for those who were inside when it began. */
#define READER 0
#define UPDATER 1
#define MOVER 2
byte inside;
byte awaited[4];
inline enter(me) { inside = inside | 1 << me }
inline leave(me) {
  d_step {
    inside = inside & ~(1 << me);
    awaited[0] = awaited[0] & inside; awaited[1] = awaited[1] & inside; awaited[2] = awaited[2] & inside; awaited[3] = awaited[3] & inside
  }
}
inline wait_for_readers(w) { awaited[w] = inside; awaited[w] == 0 }

/* What has been under each key, moment by moment. */
#define MOMENTS 4
typedef Moment { byte under[4] }
Moment moment[MOMENTS];
byte now;

inline next_moment() {
  assert(now + 1 < MOMENTS);
  moment[now + 1].under[0] = moment[now].under[0]; moment[now + 1].under[1] = moment[now].under[1];
  moment[now + 1].under[2] = moment[now].under[2]; moment[now + 1].under[3] = moment[now].under[3];
  now++
}
inline takes_effect(place, entry) { next_moment(); moment[now].under[place] = entry }

/* An entry that has been unlinked, but that a record still names. */
bit leaving;
inline has_left(place) {
  if
  :: leaving -> leaving = 0; takes_effect(place, NIL)
  :: else
  fi
}

inline acquire(b) { atomic { !head[b].locked -> head[b].locked = 1 } }
inline release(b) { head[b].locked = 0 }

proctype reader() {
  byte key, link, since, looks = 0;
  bit stop, is_gone, has_come;

look:
  if :: key = OLD :: key = NEW :: key = LOW_NEIGHBOUR :: key = HIGH_NEIGHBOUR fi;
  enter(READER);
  d_step { /* The head is loaded once. */
    since = now;
    stop = !(head[BUCKET(key)].summary & BIT(key));
    link = (stop -> NIL : head[BUCKET(key)].first)
  };
  if
  :: stop -> goto seen
  :: else
  fi;
  do
  :: link == NIL -> break
  :: else ->
    d_step {
      assert(!freed[link]);
      if
      :: hash[link] == key -> stop = 1
      :: hash[link] > key -> link = NIL
      :: else -> link = next[link]
      fi
    };
    if
    :: stop -> goto seen
    :: else
    fi
  od;
  /* The walk has missed. */
  if
  :: registered ->
    d_step {
      assert(!record_freed);
      if
      :: (key == OLD && !moved) || (key == NEW && moved) -> link = target; assert(link == NIL || !freed[link])
      :: else
      fi
    }
  :: else
  fi;

seen:
  atomic {
    do
    :: moment[since].under[key] == link -> break
    :: else -> assert(since < now); since++
    od;
#ifndef UPDATE
    assert(key != NEW || !is_gone || link != NIL);
    assert(key != OLD || !has_come || link == NIL);
#endif
    is_gone = is_gone | (key == OLD && link == NIL);
    has_come = has_come | (key == NEW && link != NIL);
    link = 0; since = 0; stop = 0;
    looks++
  };
  leave(READER);
  if
  :: looks < 2 -> goto look
  :: else
  fi
}

/* Under the lock: where `key` is, or belongs. */
inline search(key) {
  d_step {
    before = NIL;
    found = head[BUCKET(key)].first;
    do
    :: found != NIL && hash[found] < key -> assert(!freed[found]); before = found; found = next[found]
    :: else -> break
    od;
    if
    :: found != NIL && hash[found] == key -> assert(!freed[found]); after = next[found]
    :: else -> after = found; found = NIL
    fi
  }
}
inline lead_to(key, link) {
  if
  :: before == NIL -> head[BUCKET(key)].first = link
  :: else -> assert(!freed[before]); next[before] = link
  fi
}
inline set_bit(key) { head[BUCKET(key)].summary = head[BUCKET(key)].summary | BIT(key) }

/* Of both buckets, in the order of the hashes. */
inline acquire_both() {
  acquire(0);
#ifndef ONE_BUCKET
  acquire(1)
#endif
}
inline release_both() {
#ifndef ONE_BUCKET
  release(1);
#endif
  release(0)
}

inline flip(link) {
  d_step { target = link; moved = 1; next_moment(); moment[now].under[OLD] = NIL; moment[now].under[NEW] = link }
}

proctype mover() {
  byte before, found, after, old;
  registered = 1;
#ifdef COPY
  acquire_both();
  search(NEW);
  if
  :: found != NIL -> release_both(); goto unregister
  :: else
  fi;
  search(OLD);
  if
  :: found == NIL -> release_both(); goto unregister
  :: else
  fi;
  target = found;
  old = found;
#ifndef UNANNOUNCED
  set_bit(NEW);
#endif
#ifdef CLEAR_OLD_BIT
  head[BUCKET(OLD)].summary = head[BUCKET(OLD)].summary & ~BIT(OLD);
#endif
  lead_to(OLD, after);
  flip(COPY_OF_IT);
  search(NEW);
  next[COPY_OF_IT] = after;
  lead_to(NEW, COPY_OF_IT);
  set_bit(NEW);
  release_both();
#else
  acquire(BUCKET(OLD));
  search(OLD);
  if
  :: found == NIL -> release(BUCKET(OLD)); goto unregister
  :: else
  fi;
  target = found;
#ifdef CLEAR_OLD_BIT
  head[BUCKET(OLD)].summary = head[BUCKET(OLD)].summary & ~BIT(OLD);
#endif
  lead_to(OLD, after);
  release(BUCKET(OLD));
#ifndef SKIP_UNLINK_WAIT
  wait_for_readers(0); /* Nobody stands on it any more, whose walk would go astray. */
#endif
  acquire_both();
  if
  :: target == NIL -> release_both(); goto unregister /* removed meanwhile */
  :: else
  fi;
  search(NEW);
  if
  :: found != NIL -> /* The new key has been taken: back. */
    search(OLD);
    next[target] = after;
    lead_to(OLD, target)
  :: else ->
    hash[target] = NEW;
#ifndef UNANNOUNCED
    set_bit(NEW);
#endif
#ifndef LINK_BEFORE_FLIP
    flip(target);
#endif
    next[target] = after;
    lead_to(NEW, target);
#ifdef LINK_BEFORE_FLIP
    flip(target);
#endif
    set_bit(NEW)
  fi;
  release_both();
#endif
#ifndef SKIP_LINK_WAIT
  wait_for_readers(0); /* Nobody is left whose walk missed the link before it was there. */
#endif
#ifdef COPY
  freed[old] = 1;
#endif

unregister:
  atomic { registered = 0; has_left((moved -> NEW : OLD)) };
#ifndef SKIP_RECORD_WAIT
  wait_for_readers(0);
#endif
  record_freed = 1
}

/* Whoever changes what a key has while a record names it, tells the record afterwards. */
inline retarget(to) {
  if
  :: registered && target == found ->
    assert(!record_freed);
#ifndef KEEP_TARGET
    target = to
#endif
  :: else
  fi
}

proctype updater(byte key) {
  byte before, found, after;
  bit in_record = 0;
  enter(UPDATER);
  acquire(BUCKET(key));
  search(key);
  if
  :: found == NIL && key == OLD && registered && !moved && target != NIL -> found = target; in_record = 1
  :: else
  fi;
  if
  :: in_record && found != NIL -> /* remove from the record */
    d_step { target = NIL; takes_effect(key, NIL) }
  :: in_record && found != NIL -> /* replace in the record */
    hash[ANOTHER] = key;
    d_step { target = ANOTHER; takes_effect(key, ANOTHER) }
  :: !in_record && found != NIL -> /* remove: as long as there is a record that names it, that has the last word */
    d_step {
      lead_to(key, after);
      leaving = 1;
      if
      :: !(registered && target == found) -> has_left(key)
      :: else
      fi
    };
    d_step { retarget(NIL); has_left(key) };
    if
    :: !registered -> head[BUCKET(key)].summary = head[BUCKET(key)].summary & ~BIT(key)
    :: else
    fi
  :: !in_record && found != NIL -> /* replace */
    hash[ANOTHER] = key;
    next[ANOTHER] = after;
    atomic { lead_to(key, ANOTHER); takes_effect(key, ANOTHER) };
    retarget(ANOTHER)
  :: found == NIL -> /* insert */
    hash[ANOTHER] = key;
    next[ANOTHER] = after;
    set_bit(key);
    atomic { lead_to(key, ANOTHER); takes_effect(key, ANOTHER) }
  fi;
  release(BUCKET(key));
  leave(UPDATER);
  if
  :: found != NIL ->
#ifndef SKIP_NODE_WAIT
    wait_for_readers(1);
#endif
    freed[found] = 1
  :: else
  fi
}

/* The table has what was there at the last moment, in order, and nothing else. */
inline check() {
  link = head[0].first;
  place = 0;
  do
  :: place < 4 ->
    if
    :: BUCKET(place) != 0 && place == 2 -> assert(link == NIL); link = head[BUCKET(2)].first
    :: else
    fi;
    if
    :: moment[now].under[place] != NIL ->
      assert(link == moment[now].under[place] && hash[link] == place && !freed[link]);
      assert(head[BUCKET(place)].summary & BIT(place));
      link = next[link]
    :: else
    fi;
    place++
  :: else -> assert(link == NIL); break
  od
}

init {
  byte place, link;
  atomic {
    hash[ENTRY] = OLD; hash[COPY_OF_IT] = NEW; hash[LOW_NEIGHBOUR] = LOW_NEIGHBOUR; hash[HIGH_NEIGHBOUR] = HIGH_NEIGHBOUR;
    next[LOW_NEIGHBOUR] = NIL; next[HIGH_NEIGHBOUR] = NIL;
    head[0].first = LOW_NEIGHBOUR;
#ifdef ONE_BUCKET
    next[LOW_NEIGHBOUR] = HIGH_NEIGHBOUR;
#else
    head[1].first = HIGH_NEIGHBOUR;
#endif
#if defined(BACKWARD) && defined(ONE_BUCKET)
    next[LOW_NEIGHBOUR] = ENTRY; next[ENTRY] = HIGH_NEIGHBOUR;
#else
    next[ENTRY] = OLD + 1; head[BUCKET(OLD)].first = ENTRY;
#endif
    head[BUCKET(LOW)].summary = BIT(LOW_NEIGHBOUR);
    head[BUCKET(HIGH)].summary = head[BUCKET(HIGH)].summary | BIT(HIGH_NEIGHBOUR);
    set_bit(OLD);
    moment[0].under[OLD] = ENTRY; moment[0].under[NEW] = NIL;
    moment[0].under[LOW_NEIGHBOUR] = LOW_NEIGHBOUR; moment[0].under[HIGH_NEIGHBOUR] = HIGH_NEIGHBOUR;
    run mover();
#ifdef UPDATE
    if
    :: run updater(OLD)
    :: run updater(NEW)
    fi;
#endif
    run reader()
  };
  _nr_pr == 1 -> d_step { check(); link = 0 }
}
