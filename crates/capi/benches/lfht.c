/*
 * Compares librelativist with liburcu's cds_lfht ("memb" flavour, small functions inlined), with the
 * same objects, hashes and workloads:
 *
 *     hit      look up a random key that is in the table, in a read section of its own
 *     miss     look up a key that is not in the table
 *     replace  put a new object in the place of a random one, and free the old one after a grace period
 *     churn    remove a random key, and add it again
 *
 * lfht [ENTRIES [THREADS [ROUNDS [SECONDS]]]]: gcc -O2 -pthread lfht.c $(pkg-config --cflags --libs
 * relativist) -lurcu-memb -lurcu-cds. Both tables begin with a bucket for each entry, rounded up to a
 * power of two, and resize themselves. They are measured alternately. The program prints medians over
 * all rounds, and the median of the ratios of the rounds.
 */
#define _LGPL_SOURCE
#define URCU_INLINE_SMALL_FUNCTIONS
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <relativist.h>
#include <urcu/urcu-memb.h>
#include <urcu/rculfhash.h>

#define MAX_THREADS 64
#define MAX_ROUNDS 101

struct object {
    union {
        struct relativist_link ours;
        struct cds_lfht_node theirs;
    };
    union {
        struct relativist_call_head our_call;
        struct rcu_head their_call;
    };
    uint64_t key;
};

static uint64_t entries = 1 << 16;
static int threads = 2, rounds = 5;
static double seconds = 0.5;

static struct relativist_table *ours;
static struct cds_lfht *theirs;

/* The finaliser of splitmix64. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static struct object *make(uint64_t key)
{
    struct object *object = malloc(sizeof(*object));

    if (!object)
        abort();
    object->key = key;
    return object;
}

static bool our_match(struct relativist_link *link, const void *key)
{
    return caa_container_of(link, struct object, ours)->key == *(const uint64_t *)key;
}

static int their_match(struct cds_lfht_node *node, const void *key)
{
    return caa_container_of(node, struct object, theirs)->key == *(const uint64_t *)key;
}

static void our_free(struct relativist_call_head *call)
{
    free(caa_container_of(call, struct object, our_call));
}

static void their_free(struct rcu_head *call)
{
    free(caa_container_of(call, struct object, their_call));
}

static void our_retire(struct relativist_link *link)
{
    relativist_call(&caa_container_of(link, struct object, ours)->our_call, our_free, sizeof(struct object));
}

static void their_retire(struct cds_lfht_node *node)
{
    urcu_memb_call_rcu(&caa_container_of(node, struct object, theirs)->their_call, their_free);
}

static bool our_lookup(uint64_t key)
{
    bool found;

    relativist_read_lock();
    found = relativist_lookup(ours, mix(key), our_match, &key);
    relativist_read_unlock();
    return found;
}

static bool their_lookup(uint64_t key)
{
    struct cds_lfht_iter iter;
    bool found;

    urcu_memb_read_lock();
    cds_lfht_lookup(theirs, mix(key), their_match, &key, &iter);
    found = cds_lfht_iter_get_node(&iter);
    urcu_memb_read_unlock();
    return found;
}

static void our_replace(uint64_t key)
{
    struct object *object = make(key);
    struct relativist_link *old;

    relativist_link_init(&object->ours, mix(key));
    old = relativist_add_replace(ours, &object->ours, our_match, &key);
    if (old)
        our_retire(old);
}

static void their_replace(uint64_t key)
{
    struct object *object = make(key);
    struct cds_lfht_node *old;

    cds_lfht_node_init(&object->theirs);
    urcu_memb_read_lock();
    old = cds_lfht_add_replace(theirs, mix(key), their_match, &key, &object->theirs);
    if (old)
        their_retire(old);
    urcu_memb_read_unlock();
}

static void our_churn(uint64_t key)
{
    struct relativist_link *old = relativist_remove(ours, mix(key), our_match, &key);

    if (old)
        our_retire(old);
    our_replace(key);
}

static void their_churn(uint64_t key)
{
    struct cds_lfht_iter iter;
    struct cds_lfht_node *old;

    urcu_memb_read_lock();
    cds_lfht_lookup(theirs, mix(key), their_match, &key, &iter);
    old = cds_lfht_iter_get_node(&iter);
    if (old && !cds_lfht_del(theirs, old))
        their_retire(old);
    urcu_memb_read_unlock();
    their_replace(key);
}

enum work { HIT, MISS, REPLACE, CHURN, WORKS };
static const char *const names[WORKS] = {"hit", "miss", "replace", "churn"};

struct worker {
    pthread_t thread;
    uint64_t seed, operations;
    enum work work;
    bool is_ours;
};

static atomic_bool started, stopped;

static void *run(void *argument)
{
    struct worker *worker = argument;
    uint64_t state = worker->seed, operations = 0;

    urcu_memb_register_thread();
    while (!atomic_load(&started))
        sched_yield();
    while (!atomic_load_explicit(&stopped, memory_order_relaxed)) {
        for (int i = 0; i < 64; i++, operations++) {
            uint64_t key = mix(state += 0x9e3779b97f4a7c15) % entries;

            switch (worker->work) {
            case HIT:
                if (!(worker->is_ours ? our_lookup : their_lookup)(key))
                    abort();
                break;
            case MISS:
                if ((worker->is_ours ? our_lookup : their_lookup)(key + entries))
                    abort();
                break;
            case REPLACE:
                (worker->is_ours ? our_replace : their_replace)(key);
                break;
            default:
                (worker->is_ours ? our_churn : their_churn)(key);
            }
        }
    }
    worker->operations = operations;
    urcu_memb_unregister_thread();
    return NULL;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Returns the operations per second of all threads. */
static double measure(enum work work, bool is_ours, int round)
{
    struct worker workers[MAX_THREADS];
    const struct timespec duration = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    uint64_t operations = 0;
    double began, elapsed;

    atomic_store(&started, false);
    atomic_store(&stopped, false);
    for (int i = 0; i < threads; i++) {
        workers[i] = (struct worker){.seed = mix(round * MAX_THREADS + i + 1), .work = work, .is_ours = is_ours};
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
            abort();
    }
    began = now();
    atomic_store(&started, true);
    nanosleep(&duration, NULL);
    atomic_store(&stopped, true);
    elapsed = now() - began;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        operations += workers[i].operations;
    }
    /* Frees everything now, so that it does not slow down the next measurement. */
    relativist_barrier();
    urcu_memb_barrier();
    return operations / elapsed;
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;

    return (difference > 0) - (difference < 0);
}

static double median(double *values)
{
    qsort(values, rounds, sizeof(*values), compare);
    return values[rounds / 2];
}

static bool our_clear(struct relativist_link *link, void *unused)
{
    (void)unused;
    our_retire(link);
    return true;
}

static void fill(void)
{
    unsigned long buckets = 1;

    while (buckets < entries)
        buckets *= 2;
    ours = relativist_table_new(buckets, true);
    theirs = cds_lfht_new_flavor(buckets, 1, 0, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING, &urcu_memb_flavor, NULL);
    if (!ours || !theirs)
        abort();
    for (uint64_t key = 0; key < entries; key++) {
        our_replace(key);
        their_replace(key);
    }
}

static void empty(void)
{
    struct cds_lfht_iter iter;
    struct cds_lfht_node *node;

    relativist_clear(ours, our_clear, NULL);
    urcu_memb_read_lock();
    cds_lfht_for_each(theirs, &iter, node)
        if (!cds_lfht_del(theirs, node))
            their_retire(node);
    urcu_memb_read_unlock();
    relativist_barrier();
    urcu_memb_barrier();
    relativist_table_free(ours);
    cds_lfht_destroy(theirs, NULL);
}

int main(int count, char **arguments)
{
    if (count > 1)
        entries = strtoull(arguments[1], NULL, 0);
    if (count > 2)
        threads = atoi(arguments[2]);
    if (count > 3)
        rounds = atoi(arguments[3]);
    if (count > 4)
        seconds = atof(arguments[4]);
    if (!entries || threads < 1 || threads > MAX_THREADS || rounds < 1 || rounds > MAX_ROUNDS || !(seconds > 0)) {
        fprintf(stderr, "lfht [ENTRIES [THREADS, at most %d [ROUNDS, at most %d [SECONDS]]]]\n", MAX_THREADS, MAX_ROUNDS);
        return EXIT_FAILURE;
    }
    urcu_memb_register_thread();
    fill();
    printf("%llu entries, %d threads, medians of %d rounds of %g s, millions of operations per second\n\n",
           (unsigned long long)entries, threads, rounds, seconds);
    printf("| work | librelativist | cds_lfht | ratio (least to most) |\n|---|---|---|---|\n");
    for (enum work work = 0; work < WORKS; work++) {
        double rates[2][MAX_ROUNDS], ratios[MAX_ROUNDS], middle;

        for (int round = 0; round < rounds; round++) {
            for (int turn = 0; turn < 2; turn++) {
                bool is_ours = (round + turn) % 2;

                rates[is_ours][round] = measure(work, is_ours, round);
            }
            ratios[round] = rates[true][round] / rates[false][round];
        }
        middle = median(ratios);
        printf("| %s | %.2f | %.2f | %.2f (%.2f to %.2f) |\n", names[work], median(rates[true]) / 1e6,
               median(rates[false]) / 1e6, middle, ratios[0], ratios[rounds - 1]);
    }
    empty();
    urcu_memb_unregister_thread();
    return EXIT_SUCCESS;
}
