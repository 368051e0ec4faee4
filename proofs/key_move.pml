/* Moves of entries to other keys, during lookups, insertions and removals
 * (crates/baselines/src/key_move.rs). Each access to shared memory is a step of its own, except that
 * the thread with the lock searches a chain in one step, because no other thread changes chains.
 * Memory is sequentially consistent: loom checks what weaker orders do.
 *
 * There are four keys in two chains. At first, three of them have an entry. Each move is from any
 * key to any other, each update inserts or removes any key, and each lookup is of any key: so a
 * lookup may be of the entry that is moved, or of one before or after it in the old or the new chain.
 *
 *   -DMOVES=n     moves, one after the other
 *   -DUPDATES=n   updates by another thread, one after the other
 *   -DLOOKS=n     lookups of a reader
 *   -DKEPT        the reader stays in one section for all of its lookups
 *
 * Checked:
 *   - A lookup returns what was under its key at some moment of the lookup. At each moment an entry
 *     has one key: the move takes effect in one step (K1). This covers entries that are not moved
 *     (K3).
 *   - At most one move takes effect in a read section (K2).
 *   - A lookup visits at most the entries that were in its chain when it began, and the one in
 *     flight (K5).
 *   - A move that fails changes nothing (K6).
 *   - No thread accesses an entry that was freed (K7).
 *   - No thread waits for ever.
 *
 * Each of these switches leaves out a wait or a lock, and a check fails: SKIP_UNLINK_WAIT,
 * SKIP_LINK_WAIT, SKIP_ENTRY_WAIT, SKIP_LOCK, UNLOCK_EARLY. These leave out or misplace a step:
 * UNLINK_FIRST, LAND_FIRST, FORGET_IN_FLIGHT, IGNORE_TAKEN, UPDATE_INSIDE.
 */
#define NIL 255
#define KEYS 4
#define HEAD(key) head[(key) / 2]

#define RESIDENTS 3
#define ENTRIES (RESIDENTS + UPDATES)
/* Under which key a lookup finds the entry. */
byte key_of[ENTRIES];
byte next[ENTRIES];
bit freed[ENTRIES];
byte head[2];
byte in_flight = NIL;
bit locked;

/* Grace periods: a waiter waits for the threads that were inside when it began. */
#define READER 0
#define UPDATER 1
#define MOVER 0
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
#define MOMENTS (MOVES + UPDATES + 1)
typedef Moment { byte under[KEYS] }
Moment moment[MOMENTS];
byte now;
/* The moves that have taken effect. */
byte moves;

inline takes_effect(key, entry) {
  assert(now + 1 < MOMENTS);
  moment[now + 1].under[0] = moment[now].under[0]; moment[now + 1].under[1] = moment[now].under[1];
  moment[now + 1].under[2] = moment[now].under[2]; moment[now + 1].under[3] = moment[now].under[3];
  now++;
  moment[now].under[key] = entry
}

inline acquire() { atomic { !locked -> locked = 1 } }
inline release() { locked = 0 }

inline any(key) { if :: key = 0 :: key = 1 :: key = 2 :: key = 3 fi }

/* The number of entries in the chain of `key`. */
inline measure(key, length) {
  length = 0;
  link = HEAD(key);
  do
  :: link != NIL -> length++; link = next[link]
  :: else -> break
  od
}

proctype reader() {
  byte key, link, since, entered, left, looks;

  do
  :: looks < LOOKS ->
    any(key);
#ifdef KEPT
    if
    :: looks == 0 -> atomic { enter(READER); entered = moves }
    :: else
    fi;
#else
    atomic { enter(READER); entered = moves };
#endif
    d_step { since = now; measure(key, left); link = HEAD(key) };
    do
    :: link == NIL -> break
    :: else ->
      d_step { assert(left > 0); left-- };
      assert(!freed[link]);
      if
      :: key_of[link] == key -> goto out
      :: else
      fi;
      d_step { assert(!freed[link]); link = next[link] }
    od;
#ifndef FORGET_IN_FLIGHT
    link = in_flight;
    if
    :: link == NIL
    :: else ->
      assert(!freed[link]);
      if
      :: key_of[link] == key
      :: else -> link = NIL
      fi
    fi;
#endif

out:
    atomic {
      assert(link == NIL || !freed[link]);
      assert(moves <= entered + 1);
      do
      :: moment[since].under[key] == link -> break
      :: else -> assert(since < now); since++
      od;
      link = 0; since = 0; left = 0;
      looks++
    };
#ifdef KEPT
    if
    :: looks == LOOKS -> leave(READER)
    :: else
    fi
#else
    leave(READER)
#endif
  :: else -> break
  od
}

/* Under the lock: finds the entry with this key, and what leads to it. */
inline search(key) {
  d_step {
    before_it = NIL;
    found = HEAD(key);
    do
    :: found != NIL && key_of[found] != key -> assert(!freed[found]); before_it = found; found = next[found]
    :: else -> break
    od
  }
}
inline unlink(key) {
  if
  :: before_it == NIL -> HEAD(key) = next[found]
  :: else -> next[before_it] = next[found]
  fi
}

proctype mover() {
  byte from, to, before_it, found, link, done;

  do
  :: done < MOVES ->
    any(from);
    any(to);
    acquire();
#ifndef IGNORE_TAKEN
    search(to);
    link = found;
#else
    link = NIL;
#endif
    search(from);
    if
    :: found == NIL || link != NIL -> release()
    :: else ->
#ifdef UNLINK_FIRST
      unlink(from);
      in_flight = found;
#else
      in_flight = found;
      unlink(from);
#endif
#ifndef SKIP_UNLINK_WAIT
      wait_for_readers(MOVER); /* No reader is at the entry: its walk would continue in the other chain. */
#endif
      d_step { /* The key is stored. */
        key_of[found] = to;
        moves++;
        takes_effect(from, NIL); moment[now].under[to] = found
      };
      next[found] = HEAD(to);
#ifdef LAND_FIRST
      in_flight = NIL;
#endif
      HEAD(to) = found;
#ifdef UNLOCK_EARLY
      release();
#endif
#ifndef SKIP_LINK_WAIT
      wait_for_readers(MOVER); /* No reader is left that walked the chain before the entry was in it. */
#endif
      in_flight = NIL;
#ifndef UNLOCK_EARLY
      release()
#endif
    fi;
    atomic { from = 0; to = 0; before_it = 0; found = 0; link = 0; done++ }
  :: else -> break
  od
}

proctype updater() {
  byte key, before_it, found, done;

  do
  :: done < UPDATES ->
    any(key);
#ifdef UPDATE_INSIDE
    enter(UPDATER);
#endif
#ifndef SKIP_LOCK
    acquire();
#endif
    search(key);
    if
    :: found == NIL -> /* insert */
      key_of[RESIDENTS + done] = key;
      next[RESIDENTS + done] = HEAD(key);
      d_step { HEAD(key) = RESIDENTS + done; takes_effect(key, RESIDENTS + done) }
    :: else -> d_step { unlink(key); takes_effect(key, NIL) }
    fi;
#ifndef SKIP_LOCK
    release();
#endif
#ifdef UPDATE_INSIDE
    leave(UPDATER);
#endif
    if
    :: found != NIL ->
#ifndef SKIP_ENTRY_WAIT
      wait_for_readers(UPDATER);
#endif
      freed[found] = 1
    :: else
    fi;
    atomic { key = 0; before_it = 0; found = 0; done++ }
  :: else -> break
  od
}

/* Each key has the entry of the last moment, and the chains have no other entries. */
inline check() {
  assert(in_flight == NIL && !locked);
  key = 0; present = 0;
  do
  :: key < KEYS ->
    search(key);
    assert(found == moment[now].under[key]);
    if
    :: found != NIL -> present++
    :: else
    fi;
    key++
  :: else -> break
  od;
  measure(0, length);
  present = present - length;
  measure(KEYS - 1, length);
  assert(present == length)
}

init {
  byte key, before_it, found, link, present, length;
  atomic {
    key_of[0] = 0; key_of[1] = 1; key_of[2] = 2;
    head[0] = 0; next[0] = 1; next[1] = NIL;
    head[1] = 2; next[2] = NIL;
    moment[0].under[0] = 0; moment[0].under[1] = 1; moment[0].under[2] = 2; moment[0].under[3] = NIL;
    run mover();
    run updater();
    run reader()
  };
  _nr_pr == 1 -> atomic { check() }
}
