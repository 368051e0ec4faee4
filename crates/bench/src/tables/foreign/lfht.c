/*
 * liburcu's cds_lfht with the "memb" flavour and small functions inlined. It resizes itself. Each operation has a
 * read section of its own, also updates, for which cds_lfht requires one.
 *
 * At least up to version 0.13, cds_lfht can lose its request for a larger array. It queues the request, and only then
 * sets the flag that a request is queued. If the worker does the work and clears the flag in between, the flag stays
 * set, and no further request is made. Insertion then takes quadratic time, which happened several times on a busy
 * machine. So we also request the proper size, half-way between the powers of two at which cds_lfht does. If the array
 * has this size already, the request has no effect.
 */
#define _LGPL_SOURCE
#define URCU_INLINE_SMALL_FUNCTIONS
#include <pthread.h>
#include <stdlib.h>
#include <urcu/urcu-memb.h>
#include <urcu/rculfhash.h>

#include "operations.h"

struct entry {
	struct cds_lfht_node node;
	uint64_t key;
	uint64_t value;
	struct rcu_head head;
};

struct table {
	struct cds_lfht *ht;
	/* The number of entries that threads have reported. */
	long entries;
};

static inline struct cds_lfht *ht_of(void *table)
{
	return ((struct table *)table)->ht;
}

/* A thread reports its insertions and removals when their difference is this large. */
#define UNREPORTED 1024
static __thread long unreported;

/* A thread registers before its first operation, and unregisters when it exits. */
static pthread_key_t on_exit_of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread bool registered;

static void unregister(void *unused)
{
	(void)unused;
	urcu_memb_unregister_thread();
	registered = false;
}

static void make_key(void)
{
	if (pthread_key_create(&on_exit_of_thread, unregister))
		abort();
}

static __attribute__((noinline)) void do_register(void)
{
	pthread_once(&once, make_key);
	urcu_memb_register_thread();
	registered = true;
	if (pthread_setspecific(on_exit_of_thread, &registered))
		abort();
}

static inline void enter(void)
{
	if (__builtin_expect(!registered, 0))
		do_register();
	urcu_memb_read_lock();
}

static inline void leave(void)
{
	urcu_memb_read_unlock();
}

static int match(struct cds_lfht_node *node, const void *key)
{
	return caa_container_of(node, struct entry, node)->key == *(const uint64_t *)key;
}

static void release(struct rcu_head *head)
{
	free(caa_container_of(head, struct entry, head));
}

static void retire(struct cds_lfht_node *node)
{
	urcu_memb_call_rcu(&caa_container_of(node, struct entry, node)->head, release);
}

static struct entry *make(uint64_t key, uint64_t value)
{
	struct entry *entry = malloc(sizeof(*entry));

	if (!entry)
		abort();
	cds_lfht_node_init(&entry->node);
	entry->key = key;
	entry->value = value;
	return entry;
}

/*
 * Counts an insertion (1) or a removal (-1) by this thread. Must be called outside of read sections, because resizing
 * waits for them.
 */
static inline void count_change(struct table *table, long change)
{
	long entries, buckets;

	unreported += change;
	if (__builtin_expect(unreported != UNREPORTED && unreported != -UNREPORTED, 1))
		return;
	entries = uatomic_add_return(&table->entries, unreported);
	unreported = 0;
	buckets = entries / 3 * 2;
	if (change > 0 && buckets >= 2 * UNREPORTED && entries % 3 == 0 && !(buckets & (buckets - 1)))
		cds_lfht_resize(table->ht, buckets);
}

static void *create(size_t capacity)
{
	struct table *table = calloc(1, sizeof(*table));
	unsigned long buckets = 1;

	while (buckets < capacity)
		buckets *= 2;
	if (table)
		table->ht = cds_lfht_new_flavor(buckets, 1, 0, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING,
						&urcu_memb_flavor, NULL);
	if (!table || !table->ht)
		abort();
	return table;
}

static void clear(void *table)
{
	struct cds_lfht *ht = ht_of(table);
	struct cds_lfht_iter iter;
	struct cds_lfht_node *node;

	enter();
	cds_lfht_for_each(ht, &iter, node)
		if (!cds_lfht_del(ht, node))
			retire(node);
	leave();
	uatomic_set(&((struct table *)table)->entries, 0);
}

static void destroy(void *table)
{
	clear(table);
	urcu_memb_barrier();
	cds_lfht_destroy(ht_of(table), NULL);
	free(table);
}

static bool get(void *table, uint64_t key, uint64_t *value)
{
	struct cds_lfht_iter iter;
	struct cds_lfht_node *node;

	enter();
	cds_lfht_lookup(ht_of(table), relativist_hash(key), match, &key, &iter);
	node = cds_lfht_iter_get_node(&iter);
	if (node)
		*value = caa_container_of(node, struct entry, node)->value;
	leave();
	return node;
}

static bool insert(void *table, uint64_t key, uint64_t value)
{
	struct entry *entry = make(key, value);
	struct cds_lfht_node *old;

	enter();
	old = cds_lfht_add_replace(ht_of(table), relativist_hash(key), match, &key, &entry->node);
	if (old)
		retire(old);
	leave();
	if (!old)
		count_change(table, 1);
	return !old;
}

static bool try_insert(void *table, uint64_t key, uint64_t value)
{
	struct cds_lfht *ht = ht_of(table);
	struct entry *entry = make(key, value);
	bool inserted;

	enter();
	inserted = cds_lfht_add_unique(ht, relativist_hash(key), match, &key, &entry->node) == &entry->node;
	leave();
	if (inserted)
		count_change(table, 1);
	else
		free(entry);
	return inserted;
}

static bool remove_key(void *table, uint64_t key)
{
	struct cds_lfht_iter iter;
	struct cds_lfht_node *node;
	bool removed;

	enter();
	cds_lfht_lookup(ht_of(table), relativist_hash(key), match, &key, &iter);
	node = cds_lfht_iter_get_node(&iter);
	removed = node && !cds_lfht_del(ht_of(table), node);
	if (removed)
		retire(node);
	leave();
	if (removed)
		count_change(table, -1);
	return removed;
}

static void for_each(void *table, relativist_visit visit, void *context)
{
	struct cds_lfht_iter iter;
	struct cds_lfht_node *node;

	enter();
	cds_lfht_for_each(ht_of(table), &iter, node)
		visit(context, caa_container_of(node, struct entry, node)->value);
	leave();
}

static uint64_t hash(uint64_t key)
{
	return relativist_hash(key);
}

const struct relativist_operations relativist_lfht = {
	.create = create,
	.destroy = destroy,
	.get = get,
	.insert = insert,
	.try_insert = try_insert,
	.remove = remove_key,
	.clear = clear,
	.for_each = for_each,
	.hash = hash,
};
