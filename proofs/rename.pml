/* A rename: the move of an entry from one key to another, during lookups and one update of either
 * key (crates/map/src/raw: rename, in_flight, lookup, update). A rename excludes resizes, so the
 * table has one array. Each access to shared memory is a step of its own. Memory is sequentially
 * consistent: loom checks what weaker orders do.
 *
 * While the entry is in no chain, it is in flight. The stage says under which key lookups find it:
 * `old_key` or `new_key`. In the stage `recheck`, a lookup that has missed walks its chain once
 * more. A lookup reads the stage only when its walk has missed. So summaries must keep the bits of
 * both keys, or the lookup would not walk at all.
 *
 *   -DONE_BUCKET   both keys are in one bucket
 *   -DBACKWARD     the new key's hash is the smaller one
 *   -DREPLACE      another entry takes its place, instead of the entry itself (rename_to)
 *   -DUPDATE       an update of one of the keys runs at the same time
 *   -DTWICE        a second rename follows, back to the first key
 *   -DKEPT         the reader stays in one section for both of its lookups
 *
 * Checked:
 *   - A lookup returns what was under its key at some moment of the lookup, where at each moment the
 *     entry is under one key (T3, T10). A reader that does not find the old key finds the new one
 *     afterwards. A reader that finds the new key does not find the old one afterwards.
 *   - At most one rename takes effect in a read section (T10).
 *   - Lookups find the neighbours (T1).
 *   - No thread waits for ever (T4).
 *   - No thread accesses an entry that was freed (T8).
 *
 * Each of these switches leaves out a wait, and a check fails: SKIP_UNLINK_WAIT, SKIP_RENAME_WAIT,
 * SKIP_ENTRY_WAIT. These leave out or misplace a step: TAKE_AFTER_UNLINK, UNANNOUNCED_TURN,
 * LINK_BEFORE_TURN, KEEP_IN_FLIGHT, WALK_ONCE.
 */
#define NIL 255
/* Places in the order of hashes; each bucket has one of the two keys, and a neighbour after it. */
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
#define REPLACEMENT 2
#define ANOTHER 4
byte hash[5];
byte next[5];
bit freed[5];

typedef Head { byte first; byte summary; bit locked }
Head head[2];

mtype = { nothing, old_key, new_key, recheck };
mtype stage = nothing;
byte in_flight[2]; /* in the stages `old_key` and `new_key` */
byte in_flight_key[2];
#define UNDER_OLD 0
#define UNDER_NEW 1

/* Grace periods: a waiter waits for the threads that were inside when it began. */
#define READER 0
#define UPDATER 1
byte inside;
byte awaited[2];
inline enter(me) { inside = inside | 1 << me }
inline leave(me) {
  d_step {
    inside = inside & ~(1 << me);
    awaited[0] = awaited[0] & inside; awaited[1] = awaited[1] & inside
  }
}
inline wait_for_readers(w) { awaited[w] = inside; awaited[w] == 0 }

/* The entry under each key, at each moment. */
#define MOMENTS 4
typedef Moment { byte under[4] }
Moment moment[MOMENTS];
byte now;
/* The renames that have taken effect. */
byte renames;

inline next_moment() {
  assert(now + 1 < MOMENTS);
  moment[now + 1].under[0] = moment[now].under[0]; moment[now + 1].under[1] = moment[now].under[1];
  moment[now + 1].under[2] = moment[now].under[2]; moment[now + 1].under[3] = moment[now].under[3];
  now++
}
inline takes_effect(place, entry) { next_moment(); moment[now].under[place] = entry }

inline acquire(b) { atomic { !head[b].locked -> head[b].locked = 1 } }
inline release(b) { head[b].locked = 0 }

proctype reader() {
  byte key, link, since, entered, looks = 0;
  bit stop, is_last, is_gone, has_come;
  mtype seen;

look:
  if :: key = OLD :: key = NEW :: key = LOW_NEIGHBOUR :: key = HIGH_NEIGHBOUR fi;
#ifdef KEPT
  if
  :: looks == 0 -> atomic { enter(READER); entered = renames }
  :: else
  fi;
#else
  atomic { enter(READER); entered = renames };
#endif
  since = now;

walk:
  skip;
  d_step { /* The head is loaded once. The second walk does not use the summary. */
    stop = !is_last && !(head[BUCKET(key)].summary & BIT(key));
    link = (stop -> NIL : head[BUCKET(key)].first)
  };
  if
  :: stop -> goto seen_it
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
    :: stop -> goto seen_it
    :: else
    fi
  od;
  /* The walk has missed. */
  if
  :: is_last || stage == nothing -> goto seen_it
  :: else
  fi;
  seen = stage;
  if
  :: seen == old_key && key == in_flight_key[UNDER_OLD] -> link = in_flight[UNDER_OLD]
  :: seen == new_key && key == in_flight_key[UNDER_NEW] -> link = in_flight[UNDER_NEW]
#ifndef WALK_ONCE
  :: seen == recheck -> is_last = 1; goto walk
#endif
  :: else
  fi;

seen_it:
  atomic {
    assert(link == NIL || !freed[link]);
    assert(renames <= entered + 1);
    do
    :: moment[since].under[key] == link -> break
    :: else -> assert(since < now); since++
    od;
#if !defined(UPDATE) && !defined(TWICE)
    assert(key != NEW || !is_gone || link != NIL);
    assert(key != OLD || !has_come || link == NIL);
#endif
    is_gone = is_gone | (key == OLD && link == NIL);
    has_come = has_come | (key == NEW && link != NIL);
    link = 0; since = 0; stop = 0; is_last = 0; seen = nothing;
    looks++
  };
#ifdef KEPT
  if
  :: looks == 2 -> leave(READER)
  :: else
  fi;
#else
  leave(READER);
#endif
  if
  :: looks < 2 -> goto look
  :: else
  fi
}

/* Under the lock: finds `key`, or its place. */
inline search(key) {
  d_step {
    before_it = NIL;
    found = head[BUCKET(key)].first;
    do
    :: found != NIL && hash[found] < key -> assert(!freed[found]); before_it = found; found = next[found]
    :: else -> break
    od;
    if
    :: found != NIL && hash[found] == key -> assert(!freed[found]); after_it = next[found]
    :: else -> after_it = found; found = NIL
    fi
  }
}
inline lead_to(key, link) {
  if
  :: before_it == NIL -> head[BUCKET(key)].first = link
  :: else -> assert(!freed[before_it]); next[before_it] = link
  fi
}
inline set_bit(key) { head[BUCKET(key)].summary = head[BUCKET(key)].summary | BIT(key) }

/* Locks both buckets, in the order of the hashes. */
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

inline clear_bit(key) { head[BUCKET(key)].summary = head[BUCKET(key)].summary & ~BIT(key) }

inline take() { d_step { in_flight_key[UNDER_OLD] = from; in_flight[UNDER_OLD] = found }; stage = old_key }

/* Under both locks: the entry leaves the chain of its old key. Lookups still find it, in flight. */
inline take_and_unlink() {
  search(from);
#ifndef TAKE_AFTER_UNLINK
  take();
#endif
  lead_to(from, after_it);
#ifdef TAKE_AFTER_UNLINK
  take();
#endif
}

/* The moment at which the rename takes effect. */
inline turn(link) {
  d_step { in_flight_key[UNDER_NEW] = to; in_flight[UNDER_NEW] = link };
  d_step { stage = new_key; renames++; next_moment(); moment[now].under[from] = NIL; moment[now].under[to] = link }
}

inline insert(key, link) {
  search(key);
  next[link] = after_it;
  set_bit(key);
  lead_to(key, link)
}

inline finish(link) {
#ifndef UNANNOUNCED_TURN
  set_bit(to);
#endif
#ifdef LINK_BEFORE_TURN
  insert(to, link);
#endif
  turn(link);
#ifndef LINK_BEFORE_TURN
  insert(to, link);
#endif
#ifndef KEEP_IN_FLIGHT
  stage = recheck;
#endif
  search(from);
  if
  :: found == NIL -> clear_bit(from)
  :: else
  fi;
  release_both()
}

proctype renamer() {
  byte before_it, found, after_it, link, from = OLD, to = NEW;

rename:
  acquire_both();
  search(to);
  if
  :: found != NIL -> release_both(); goto out
  :: else
  fi;
  search(from);
  if
  :: found == NIL -> release_both(); goto out
  :: else
  fi;
  take_and_unlink();
#ifdef REPLACE
  link = found;
  finish(REPLACEMENT);
#else
  release_both();
#ifndef SKIP_UNLINK_WAIT
  wait_for_readers(0); /* No reader is at the link any more: its walk would continue in the wrong chain. */
#endif
  acquire_both();
  link = in_flight[UNDER_OLD];
  search(to);
  if
  :: link == NIL -> release_both() /* removed meanwhile */
  :: link != NIL && found != NIL -> /* The new key was inserted meanwhile: put the link back. */
    release_both();
    acquire(BUCKET(from));
    link = in_flight[UNDER_OLD];
    if
    :: link != NIL -> insert(from, link); stage = recheck
    :: else
    fi;
    release(BUCKET(from))
  :: else ->
    hash[link] = to;
    finish(link)
  fi;
#endif
#ifndef SKIP_RENAME_WAIT
  wait_for_readers(0); /* All readers that walked the new chain before the link was in it have left. */
#endif
  stage = nothing;
#ifdef REPLACE
  freed[link] = 1;
#endif

out:
#ifdef TWICE
  if
  :: from == OLD -> atomic { from = NEW; to = OLD; link = 0; before_it = 0; found = 0; after_it = 0 }; goto rename
  :: else
  fi
#else
  skip
#endif
}

proctype updater(byte key) {
  byte before_it, found, after_it;
  bit is_held = 0;
  enter(UPDATER);
  acquire(BUCKET(key));
  search(key);
  if
  :: found == NIL && stage == old_key && key == in_flight_key[UNDER_OLD] -> found = in_flight[UNDER_OLD]; is_held = (found != NIL)
  :: else
  fi;
  if
  :: is_held -> /* remove */
    d_step { in_flight[UNDER_OLD] = NIL; takes_effect(key, NIL) }
  :: is_held -> /* replace */
    hash[ANOTHER] = key;
    d_step { in_flight[UNDER_OLD] = ANOTHER; takes_effect(key, ANOTHER) }
  :: !is_held && found != NIL -> /* remove */
    is_held = (stage != nothing); /* while a rename needs it, the bit stays */
    d_step { lead_to(key, after_it); takes_effect(key, NIL) };
    if
    :: !is_held -> clear_bit(key)
    :: else
    fi
  :: !is_held && found != NIL -> /* replace */
    hash[ANOTHER] = key;
    next[ANOTHER] = after_it;
    d_step { lead_to(key, ANOTHER); takes_effect(key, ANOTHER) }
  :: found == NIL -> /* insert */
    hash[ANOTHER] = key;
    next[ANOTHER] = after_it;
    set_bit(key);
    d_step { lead_to(key, ANOTHER); takes_effect(key, ANOTHER) }
  fi;
  release(BUCKET(key));
  leave(UPDATER);
  if
  :: found != NIL ->
#ifndef SKIP_ENTRY_WAIT
    wait_for_readers(1);
#endif
    freed[found] = 1
  :: else
  fi
}

/* The table has the entries of the last moment, in order, and no others. */
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
    hash[ENTRY] = OLD; hash[REPLACEMENT] = NEW; hash[LOW_NEIGHBOUR] = LOW_NEIGHBOUR; hash[HIGH_NEIGHBOUR] = HIGH_NEIGHBOUR;
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
    run renamer();
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
