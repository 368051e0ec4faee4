/* The move of an entry from one key to another, beside lookups and one update of either key (crates/map/src/raw: rename, hand, lookup,
 * update). A rename excludes transitions, so the table is at rest. Each access to what threads
 * share is a step of its own, and the order of memory accesses is sequentially consistent.
 *
 * While the entry is in no chain, it is in hand: `before` under its old key, `after` under the new
 * one, and `again` tells lookups that have missed to walk once more. They look at the hand only
 * when their walk has missed; so summaries must keep the bits of both keys, or else there would be
 * no walk.
 *
 *   -DONE_BUCKET   both keys are in one bucket
 *   -DBACKWARD     the new key's hash is the smaller one
 *   -DREPLACE      another entry takes its place, instead of the entry itself (rename_to)
 *   -DUPDATE       beside it, one of the keys is updated
 *
 * Checked: what a lookup finds was there at some moment of the lookup, when at each moment the
 * entry is under one key (T3, T10: who misses the old key finds the new one afterwards, and who
 * finds the new one misses the old one); neighbours are always found (T1); nobody waits for ever
 * (T4); what is reclaimed is not looked at (T8).
 *
 * Each wait can be left out, and then one of these fails: SKIP_UNLINK_WAIT, SKIP_RENAME_WAIT,
 * SKIP_ENTRY_WAIT. So can steps: TAKE_AFTER_UNLINK, UNANNOUNCED_TURN, LINK_BEFORE_TURN,
 * KEEP_IN_HAND, WALK_ONCE.
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
#define REPLACEMENT 2
#define ANOTHER 4
byte hash[5];
byte next[5];
bit freed[5];

typedef Head { byte first; byte summary; bit locked }
Head head[2];

mtype = { nothing, before, after, again };
mtype stage = nothing;
byte in_hand[2]; /* of `before` and `after` */
#define BEFORE 0
#define AFTER 1

/* Grace periods: a waiter waits for those who were inside when it began. */
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

inline acquire(b) { atomic { !head[b].locked -> head[b].locked = 1 } }
inline release(b) { head[b].locked = 0 }

proctype reader() {
  byte key, link, since, looks = 0;
  bit stop, is_last, is_gone, has_come;
  mtype seen;

look:
  if :: key = OLD :: key = NEW :: key = LOW_NEIGHBOUR :: key = HIGH_NEIGHBOUR fi;
  enter(READER);
  since = now;

walk:
  skip;
  d_step { /* The head is loaded once. The second walk doesn't ask the summary. */
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
  :: seen == before && key == OLD -> link = in_hand[BEFORE]
  :: seen == after && key == NEW -> link = in_hand[AFTER]
#ifndef WALK_ONCE
  :: seen == again -> is_last = 1; goto walk
#endif
  :: else
  fi;

seen_it:
  atomic {
    assert(link == NIL || !freed[link]);
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
    link = 0; since = 0; stop = 0; is_last = 0; seen = nothing;
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

inline clear_bit(key) { head[BUCKET(key)].summary = head[BUCKET(key)].summary & ~BIT(key) }

inline take() { in_hand[BEFORE] = found; stage = before }

/* Under both locks: the entry leaves the chain of its old key, and lookups go on finding it. */
inline take_and_unlink() {
  search(OLD);
#ifndef TAKE_AFTER_UNLINK
  take();
#endif
  lead_to(OLD, after_it);
#ifdef TAKE_AFTER_UNLINK
  take();
#endif
}

/* The moment of the rename. */
inline turn(link) {
  in_hand[AFTER] = link;
  d_step { stage = after; next_moment(); moment[now].under[OLD] = NIL; moment[now].under[NEW] = link }
}

inline insert(key, link) {
  search(key);
  next[link] = after_it;
  set_bit(key);
  lead_to(key, link)
}

inline finish(link) {
#ifndef UNANNOUNCED_TURN
  set_bit(NEW);
#endif
#ifdef LINK_BEFORE_TURN
  insert(NEW, link);
#endif
  turn(link);
#ifndef LINK_BEFORE_TURN
  insert(NEW, link);
#endif
#ifndef KEEP_IN_HAND
  stage = again;
#endif
  search(OLD);
  if
  :: found == NIL -> clear_bit(OLD)
  :: else
  fi;
  release_both()
}

proctype renamer() {
  byte before_it, found, after_it, link;
  acquire_both();
  search(NEW);
  if
  :: found != NIL -> release_both(); goto out
  :: else
  fi;
  search(OLD);
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
  wait_for_readers(0); /* Nobody stands on it any more, whose walk would go astray. */
#endif
  acquire_both();
  link = in_hand[BEFORE];
  search(NEW);
  if
  :: link == NIL -> release_both() /* removed meanwhile */
  :: link != NIL && found != NIL -> /* The new key has been taken meanwhile: back. */
    release_both();
    acquire(BUCKET(OLD));
    link = in_hand[BEFORE];
    if
    :: link != NIL -> insert(OLD, link); stage = again
    :: else
    fi;
    release(BUCKET(OLD))
  :: else ->
    hash[link] = NEW;
    finish(link)
  fi;
#endif
#ifndef SKIP_RENAME_WAIT
  wait_for_readers(0); /* Nobody is left whose walk missed the link before it was there. */
#endif
  stage = nothing;
#ifdef REPLACE
  freed[link] = 1;
#endif

out:
  skip
}

proctype updater(byte key) {
  byte before_it, found, after_it;
  bit is_held = 0;
  enter(UPDATER);
  acquire(BUCKET(key));
  search(key);
  if
  :: found == NIL && key == OLD && stage == before -> found = in_hand[BEFORE]; is_held = (found != NIL)
  :: else
  fi;
  if
  :: is_held -> /* remove */
    d_step { in_hand[BEFORE] = NIL; takes_effect(key, NIL) }
  :: is_held -> /* replace */
    hash[ANOTHER] = key;
    d_step { in_hand[BEFORE] = ANOTHER; takes_effect(key, ANOTHER) }
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
