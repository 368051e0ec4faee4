/* One group of the table while it is resized: a coarse bucket and the fine buckets that it covers (crates/map/src/raw: group,
 * transition, update, lookup). Each access to what threads share is a step of its own, and the order of memory accesses is
 * sequentially consistent: what weaker orders do is for loom to find out.
 *
 *   -DGROW            coarse to fine
 *   -DSHRINK          fine to coarse
 *   -DGROW -DSHRINK   one after the other
 *   -DFACTOR=n        fine buckets per coarse one, 2 or 4
 *   -DSOLE            with two fine buckets, residents in one of them only: the summary of the coarse head may tell all that growing has to know
 *
 * A fine bucket has two places, a place one key and two nodes (one to replace the other). Two places are occupied by residents,
 * which nobody removes; one of two others has an updater (with -DUPDATERS=2 both), which inserts if its key is absent, and
 * removes or replaces if it is there. A reader looks up a key, as often as -DLOOKS says.
 *
 * Checked: residents are found (T1); what lookups of a key find is what some order of its updates explains (T3); nobody
 * waits for ever (T4); what is reclaimed is not looked at (T8); at the end the table has what it should, by any head.
 *
 * Each wait can be left out, and then one of these fails: SKIP_GROW_WAIT, SKIP_SHRINK_WAIT, SKIP_PREVIOUS_WAIT,
 * SKIP_RETIRE_WAIT, SKIP_NODE_WAIT. So can be other steps: OLDER_FIRST, MARK_UNSEEN, CUT_NOTHING, PARTIAL_SUMMARY, STALE_ENTRY.
 */
#ifndef FACTOR
#define FACTOR 4
#endif
#if FACTOR == 4
#define RESIDENT_1 1
#define RESIDENT_2 5
#define UPDATED_1 2 /* alone in its fine bucket */
#define UPDATED_2 4 /* first of its fine bucket */
#elif defined(SOLE)
#define RESIDENT_1 2
#define RESIDENT_2 2
#define UPDATED_1 0 /* in the other one */
#define UPDATED_2 3 /* in the same */
#else
#define RESIDENT_1 1
#define RESIDENT_2 3
#define UPDATED_1 0
#define UPDATED_2 2
#endif
#ifndef UPDATERS
#define UPDATERS 1
#endif
#ifndef LOOKS
#define LOOKS 2
#endif
#define PLACES (2 * FACTOR)
#define NIL 255

#define PLACE(node) ((node) % PLACES)
#define OTHER(node) (((node) + PLACES) % (2 * PLACES))
#define BUCKET(place) ((place) / 2)

/* Heads: pointer, summary, lock and state are one word, which is read and written in one step. */
typedef Word {
  byte first;
  byte summary; /* of a coarse head, a bit per fine bucket; of a fine one, a bit per place */
  bit locked;
  bit transition;
  bit moved
}
typedef Array { /* a coarse array's group has one head, a fine one's FACTOR */
  Word head[FACTOR];
  bit fine;
  byte partner;
  bit freed
}
Array array[3];
byte published;
byte next[2 * PLACES];
bit freed[2 * PLACES];

#define INDEX(a, place) (array[a].fine * BUCKET(place))
#define SHARES_BUCKET(a, p, q) (!array[a].fine || BUCKET(p) == BUCKET(q))
#define SUMMARY_BIT(a, place) (1 << (array[a].fine -> (place) % 2 : BUCKET(place)))
#define SHARES_SUMMARY(a, p, q) (array[a].fine -> (p) == (q) : BUCKET(p) == BUCKET(q))
#define HEAD(a, place) array[a].head[INDEX(a, place)]

inline copy(to, from) {
  to.first = from.first; to.summary = from.summary; to.locked = from.locked;
  to.transition = from.transition; to.moved = from.moved
}
inline store(target, value, held) { d_step { copy(target, value); target.locked = held } }
inline acquire(target, value) { atomic { !target.locked -> d_step { copy(value, target); target.locked = 1 } } }

/* Grace periods. A waiter waits for those who were inside when it began. */
#define READER 0
#define UPDATER_1 1
#define UPDATER_2 2
byte inside;
/* Waiters: the updaters, and who resizes, in the midst of a transition, before the next one, and before an array is freed. */
byte awaited[5];
#define RESIZE 2
#define PREVIOUS 3
#define RETIRE 4

inline enter(me) { inside = inside | 1 << me }
inline leave(me) {
  d_step {
    inside = inside & ~(1 << me);
    awaited[0] = awaited[0] & inside; awaited[1] = awaited[1] & inside; awaited[2] = awaited[2] & inside;
    awaited[3] = awaited[3] & inside; awaited[4] = awaited[4] & inside
  }
}
inline start_grace_period(w) { awaited[w] = inside }
#define HAS_PASSED(w) (awaited[w] == 0)

/* What a key may be found to have: the node before its update, and the one after; NIL for none. `known` says which of them a
 * lookup has to reckon with that begins now, `begun` whether the later one may be found already. */
typedef History { byte node[2]; bit known; bit begun }
History history[PLACES];

inline explain(key, from, seen) {
  if
  :: seen == history[key].node[from] -> skip
  :: else ->
    assert(!from && history[key].begun && seen == history[key].node[1]);
    history[key].known = 1
  fi
}

/* Looks twice, in one section or in two: what the first lookup has seen the second may not deny. */
proctype reader(byte place) {
  byte a, link, looks = 0;
  bit since, arrived;
  enter(READER);

look:
  skip;
  d_step { since = history[place].known; a = published };
  d_step { /* The head is loaded once. No bit in the summary, no walk. */
    assert(!array[a].freed);
    link = (HEAD(a, place).summary & SUMMARY_BIT(a, place) -> HEAD(a, place).first : NIL);
    a = 0
  };
  do
  :: link == NIL -> break
  :: else ->
    d_step {
      assert(!freed[link]);
      if
      :: PLACE(link) >= place -> arrived = 1
      :: else -> link = next[link]
      fi
    };
    if
    :: arrived -> break
    :: else
    fi
  od;
  atomic {
    link = (link != NIL && PLACE(link) == place -> link : NIL);
    explain(place, since, link);
    arrived = 0; link = 0; since = 0;
    looks++
  };
  if
  :: looks < LOOKS -> goto look
  :: looks < LOOKS -> leave(READER); enter(READER); goto look
  :: else -> leave(READER)
  fi
}

/* What a head of array `b` holds when the updater's link is entered at its place (Place::updated). */
inline update(w, b) {
  if
  :: before == NIL || !SHARES_BUCKET(b, PLACE(before), place) ->
    w.first = (link != NIL && SHARES_BUCKET(b, PLACE(link), place) -> link : NIL)
  :: else
  fi;
  if
  :: inserts -> w.summary = w.summary | SUMMARY_BIT(b, place)
  :: !inserts && link == after && !(before != NIL && SHARES_SUMMARY(b, PLACE(before), place)) &&
     !(after != NIL && SHARES_SUMMARY(b, PLACE(after), place)) ->
    w.summary = w.summary & ~SUMMARY_BIT(b, place)
  :: else
  fi
}

inline set_next(node, to) {
  if
  :: node != NIL -> assert(!freed[node]); next[node] = to
  :: else
  fi
}

proctype updater(byte me; byte place) {
  byte a, partner, coarse, fine, entry, before, found, after, link;
  bit inserts;
  Word word, fine_word;
  enter(me);

look:
  a = published;
  assert(!array[a].freed);
  fine = NIL;
  if
  :: atomic { !HEAD(a, place).transition && !HEAD(a, place).locked ->
       d_step { copy(word, HEAD(a, place)); HEAD(a, place).locked = 1; coarse = a } }
  :: HEAD(a, place).transition ->
    partner = array[a].partner;
    if :: partner == NIL -> goto look :: else fi;
    d_step {
      assert(!array[partner].freed);
      coarse = (array[a].fine -> partner : a);
      fine = (array[a].fine -> a : partner)
    };
    acquire(HEAD(coarse, place), word);
    if
    :: word.moved -> HEAD(coarse, place).locked = 0; goto look
    :: else
    fi
  fi;

  /* Under the lock nobody else changes the chain: one step. (Group::search) While the group grows, the fine heads are entries, too. */
  d_step {
    before = NIL;
    found = word.first;
    entry = (fine != NIL
#ifndef STALE_ENTRY
      && word.transition
#endif
      -> BUCKET(place) : 0);
    do
    :: entry > 0 && array[fine].head[entry - 1].first == NIL -> entry--
    :: entry > 0 && array[fine].head[entry - 1].first != NIL -> found = array[fine].head[entry - 1].first; break
    :: else -> break
    od;
    do
    :: found != NIL && PLACE(found) < place -> assert(!freed[found]); before = found; found = next[found]
    :: else -> break
    od;
    if
    :: found == NIL || PLACE(found) > place -> after = found; found = NIL; inserts = 1; link = place
    :: else -> assert(!freed[found]); after = next[found]; inserts = 0; link = OTHER(found)
    fi;
    assert(found == history[place].node[0]);
    /* Where no bit is set up to the own one, the place is the first. */
    assert(word.summary & (2 * SUMMARY_BIT(coarse, place) - 1) || (before == NIL && found == NIL));
    entry = 0
  };
  if
  :: !inserts -> link = after /* remove */
  :: skip /* insert or replace */
  fi;
  d_step {
    if
    :: link != after || inserts -> next[link] = after; history[place].node[1] = link
    :: else -> history[place].node[1] = NIL
    fi;
    history[place].begun = 1
  };

  if
  :: inserts && before != NIL ->
    word.summary = word.summary | SUMMARY_BIT(coarse, place);
    store(HEAD(coarse, place), word, 1);
    if
    :: fine != NIL -> HEAD(fine, place).summary = HEAD(fine, place).summary | SUMMARY_BIT(fine, place)
    :: else
    fi
  :: else
  fi;
  d_step {
    if
    :: fine != NIL -> copy(fine_word, HEAD(fine, place)); update(fine_word, fine)
    :: else
    fi;
    update(word, coarse)
  };
  if
  :: fine == NIL -> set_next(before, link)
  :: fine != NIL &&
#ifdef OLDER_FIRST
     !
#endif
     word.transition ->
    assert(!array[fine].freed);
    store(HEAD(fine, place), fine_word, 0);
    set_next(before, link)
  :: else ->
    store(HEAD(coarse, place), word, 1);
    set_next(before, link);
    assert(!array[fine].freed);
    store(HEAD(fine, place), fine_word, 0)
  fi;
  assert(!array[coarse].freed);
  store(HEAD(coarse, place), word, 0);
  history[place].known = 1;
  leave(me);
  if
  :: found != NIL ->
#ifndef SKIP_NODE_WAIT
    start_grace_period(me - 1);
    HAS_PASSED(me - 1);
#endif
    freed[found] = 1
  :: else
  fi
}

inline empty_all(f) {
  bucket = 0;
  do
  :: bucket < FACTOR ->
    array[f].head[bucket].first = NIL; array[f].head[bucket].summary = 0; array[f].head[bucket].transition = 1;
    bucket++
  :: else -> break
  od
}

/* The fine bucket that all links go to, if the summary tells, or else NIL; any for no links. */
inline find_sole_part() {
  bucket = 0;
  do
  :: bucket < FACTOR && word.summary & ~(1 << bucket) -> bucket++
  :: else -> break
  od;
  bucket = (bucket == FACTOR -> NIL : bucket)
}

/* Nobody looks at the fine heads before the coarse one is marked, so stores to them may be one step. */
inline fill(c, f) {
  d_step { empty_all(f) };
  d_step { copy(word, array[c].head[0]); find_sole_part() };
  if
  :: bucket != NIL ->
    d_step { /* The places of the links are not known: all bits. */
      array[f].head[bucket].first = word.first;
      array[f].head[bucket].summary = (word.summary -> 3 : 0)
    };
    d_step {
      if
#ifndef MARK_UNSEEN
      :: !word.locked && !array[c].head[0].locked && word.first == array[c].head[0].first && word.summary == array[c].head[0].summary ->
#else
      :: !array[c].head[0].locked ->
#endif
        array[c].head[0].transition = 1
      :: else -> bucket = NIL
      fi
    }
  :: else
  fi;
  if
  :: bucket == NIL ->
    d_step { empty_all(f) };
    acquire(array[c].head[0], word);
    d_step {
      link = word.first;
      do
      :: link != NIL ->
        bucket = BUCKET(PLACE(link));
        if
        :: array[f].head[bucket].first == NIL -> array[f].head[bucket].first = link
        :: else
        fi;
        array[f].head[bucket].summary = array[f].head[bucket].summary | SUMMARY_BIT(f, PLACE(link));
        link = next[link]
      :: else -> break
      od;
      word.transition = 1
    };
    store(array[c].head[0], word, 0)
  :: else
  fi
}

/* Parts the chain, and makes the summaries exact, each by one store. */
inline cut(f) {
  link = word.first;
  last = NIL;
  bits = 0;
  do
  :: link != NIL ->
    if
    :: last != NIL && BUCKET(PLACE(last)) != BUCKET(PLACE(link)) ->
      next[last] = NIL;
      array[f].head[BUCKET(PLACE(last))].summary = bits;
      bits = 0
    :: else
    fi;
    d_step { bits = bits | SUMMARY_BIT(f, PLACE(link)); last = link; link = next[link] };
#ifdef PARTIAL_SUMMARY
    array[f].head[BUCKET(PLACE(last))].summary = bits
#endif
  :: else -> break
  od;
  if
  :: last != NIL -> array[f].head[BUCKET(PLACE(last))].summary = bits
  :: else
  fi
}

inline grow(c, f) {
  fill(c, f);
  published = f;
#ifndef SKIP_GROW_WAIT
  start_grace_period(RESIZE);
  HAS_PASSED(RESIZE);
#endif
  acquire(array[c].head[0], word);
  d_step { find_sole_part() };
  if
#ifndef CUT_NOTHING
  :: bucket != NIL -> skip /* in haste */
#else
  :: skip
#endif
  :: cut(f)
  fi;
  bucket = 0;
  do
  :: bucket < FACTOR -> array[f].head[bucket].transition = 0; bucket++
  :: else -> break
  od;
  atomic { word.first = NIL; word.summary = 0; word.moved = 1; word.transition = 1 };
  store(array[c].head[0], word, 0);
  array[f].partner = NIL;
  start_grace_period(PREVIOUS)
}

inline shrink(f, c) {
  d_step { word.first = NIL; word.summary = 0; word.transition = 0; word.moved = 0; last = NIL; bucket = 0 };
  do
  :: bucket < FACTOR ->
    atomic { !array[f].head[bucket].locked -> array[f].head[bucket].locked = 1 };
    link = array[f].head[bucket].first;
    if
    :: link != NIL ->
      if
      :: last == NIL -> word.first = link
      :: else -> next[last] = link
      fi;
      do
      :: link != NIL -> d_step { word.summary = word.summary | SUMMARY_BIT(c, PLACE(link)); last = link; link = next[link] }
      :: else -> break
      od
    :: else
    fi;
    bucket++
  :: else -> break
  od;
  store(array[c].head[0], word, 0);
  bucket = 0;
  do
  :: bucket < FACTOR -> d_step { array[f].head[bucket].transition = 1; array[f].head[bucket].locked = 0 }; bucket++
  :: else -> break
  od;
  published = c;
#ifndef SKIP_SHRINK_WAIT
  start_grace_period(RESIZE);
  HAS_PASSED(RESIZE);
#endif
  array[c].partner = NIL;
  array[f].freed = 1
}

bit retired;

proctype resizer() {
  byte link, last, bucket, bits;
  Word word;
#ifdef GROW
  grow(0, 1);
  retired = 1;
#ifdef SHRINK
#ifndef SKIP_PREVIOUS_WAIT
  HAS_PASSED(PREVIOUS);
#endif
  array[1].partner = 2;
  array[2].partner = 1;
#endif
#endif
#ifdef SHRINK
  shrink(1, 2)
#endif
}

/* Frees the array that growing leaves behind. */
proctype reclaimer() {
  retired -> start_grace_period(RETIRE);
#ifndef SKIP_RETIRE_WAIT
  HAS_PASSED(RETIRE);
#endif
  array[0].freed = 1
}

#if UPDATERS == 2
#define IS_UPDATED(place) (place == UPDATED_1 || place == UPDATED_2)
#else
#define IS_UPDATED(place) (place == updated)
#endif

/* Puts the last node of a chain so far before `link`, and enters it into its head. */
inline append(a, link) {
  if
  :: HEAD(a, PLACE(link)).first == NIL -> HEAD(a, PLACE(link)).first = link
  :: else -> next[last] = link
  fi;
  HEAD(a, PLACE(link)).summary = HEAD(a, PLACE(link)).summary | SUMMARY_BIT(a, PLACE(link));
  history[PLACE(link)].node[0] = link;
  last = link
}

/* At the end each place has what its history ends with, and no head leads to anything else. */
inline check(a) {
  place = 0;
  do
  :: place < PLACES ->
    if
    :: place == 0 || (array[a].fine && place % 2 == 0) ->
      link = HEAD(a, place).first;
      assert(!HEAD(a, place).locked && !HEAD(a, place).transition)
    :: else
    fi;
    last = history[place].node[history[place].known];
    if
    :: last != NIL ->
      assert(link == last && !freed[link] && HEAD(a, place).summary & SUMMARY_BIT(a, place));
      link = next[link]
    :: else
    fi;
    assert(!(array[a].fine && place % 2 == 1) || link == NIL);
    place++
  :: else -> assert(link == NIL); break
  od
}

init {
  byte place, link, last, first, updated;
  d_step {
    place = 0;
    do
    :: place < 2 * PLACES ->
      next[place] = NIL;
      if
      :: place < PLACES -> history[place].node[0] = NIL; history[place].node[1] = NIL
      :: else
      fi;
      place++
    :: else -> break
    od;
    array[1].fine = 1;
    place = 0;
    do
    :: place < FACTOR ->
      array[0].head[place].first = NIL; array[1].head[place].first = NIL; array[2].head[place].first = NIL;
      place++
    :: else -> break
    od;
#ifdef GROW
    first = 0;
    array[0].partner = 1; array[1].partner = 0
#else
    first = 1;
    array[1].partner = 2; array[2].partner = 1
#endif
    ; published = first
  };
  atomic {
    if :: updated = UPDATED_1 :: updated = UPDATED_2 fi;
    place = 0;
    do
    :: place == RESIDENT_1 || place == RESIDENT_2 || IS_UPDATED(place) -> append(first, place); place++
    :: place < PLACES && place != RESIDENT_1 && place != RESIDENT_2 -> place++
    :: place == PLACES -> break
    od;
    run resizer();
#ifdef GROW
    run reclaimer();
#endif
#if UPDATERS == 2
    run updater(UPDATER_1, UPDATED_1);
    run updater(UPDATER_2, UPDATED_2);
#else
    run updater(UPDATER_1, updated);
#endif
#if LOOKS
    if
    :: run reader(RESIDENT_1)
    :: run reader(RESIDENT_2)
    :: run reader(updated)
    fi
#endif
  };
  _nr_pr == 1 -> d_step { check(published); last = 0 }
}
