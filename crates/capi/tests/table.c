/*
 * Tests what the header promises. ci/capi.sh runs it directly, under valgrind, and with sanitizers.
 * table [ROUNDS [without-misuse]]: without tests of misuse, because valgrind takes seconds for each
 * process that aborts.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <relativist.h>

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

static unsigned long rounds = 2000;

struct object {
    /* The link is not the first field, so that a test fails if link and object are confused. */
    uint64_t key;
    struct relativist_link link;
    struct relativist_call_head call;
    uint64_t value;
    atomic_bool freed;
};

static atomic_long alive;

/* Four keys share a hash. */
static uint64_t hash(uint64_t key)
{
    return key / 4;
}

static struct object *make(uint64_t key, uint64_t value)
{
    struct object *object = calloc(1, sizeof(*object));

    CHECK(object);
    object->key = key;
    object->value = value;
    relativist_link_init(&object->link, hash(key));
    atomic_fetch_add(&alive, 1);
    return object;
}

static struct object *object_of(struct relativist_link *link)
{
    return link ? container_of(link, struct object, link) : NULL;
}

static void destroy(struct object *object)
{
    CHECK(!atomic_exchange(&object->freed, true));
    free(object);
    atomic_fetch_sub(&alive, 1);
}

static void call_destroy(struct relativist_call_head *call)
{
    destroy(container_of(call, struct object, call));
}

static bool retire(struct relativist_link *link, void *unused)
{
    (void)unused;
    relativist_call(&object_of(link)->call, call_destroy, sizeof(struct object));
    return false;
}

static bool match(struct relativist_link *link, const void *key)
{
    return object_of(link)->key == *(const uint64_t *)key;
}

/* Call this in a read section. */
static struct object *find(struct relativist_table *table, uint64_t key)
{
    return object_of(relativist_lookup(table, hash(key), match, &key));
}

static struct relativist_table *new_table(size_t buckets, bool automatic)
{
    struct relativist_table *table = relativist_table_new(buckets, automatic);

    CHECK(table);
    return table;
}

static void free_table(struct relativist_table *table)
{
    relativist_clear(table, retire, NULL);
    CHECK(relativist_count(table) == 0);
    relativist_table_free(table);
    relativist_barrier();
    CHECK(atomic_load(&alive) == 0);
}

static void sections_nest(void)
{
    CHECK(!relativist_read_ongoing());
    relativist_read_lock();
    relativist_read_lock();
    relativist_read_unlock();
    CHECK(relativist_read_ongoing());
    relativist_read_unlock();
    CHECK(!relativist_read_ongoing());
    relativist_synchronize();
}

static void what_is_called_waits_for_readers(void)
{
    struct object *object = make(1, 2);

    relativist_read_lock();
    relativist_call(&object->call, call_destroy, sizeof(*object));
    CHECK(object->value == 2 && atomic_load(&alive) == 1);
    relativist_read_unlock();
    relativist_barrier();
    CHECK(atomic_load(&alive) == 0);
}

static void operations_do_what_they_say(void)
{
    struct relativist_table *table = new_table(1, false);
    struct object *one = make(1, 10), *other = make(1, 11), *third = make(1, 12), *neighbour = make(2, 20);
    uint64_t key = 1;

    relativist_read_lock();
    CHECK(!find(table, 1));
    CHECK(relativist_add_unique(table, &one->link, match, &key) == &one->link);
    CHECK(relativist_add_unique(table, &other->link, match, &key) == &one->link);
    CHECK(relativist_add_replace(table, &other->link, match, &key) == &one->link);
    CHECK(find(table, 1) == other && !find(table, 2));
    CHECK(!relativist_del(table, &one->link));
    CHECK(!relativist_replace(table, &one->link, &third->link));
    CHECK(relativist_replace(table, &other->link, &third->link));
    CHECK(find(table, 1) == third && relativist_count(table) == 1);
    key = 2;
    CHECK(!relativist_add_replace(table, &neighbour->link, match, &key));
    CHECK(find(table, 2) == neighbour && relativist_count(table) == 2);
    CHECK(relativist_remove(table, hash(key), match, &key) == &neighbour->link);
    CHECK(!relativist_remove(table, hash(key), match, &key));
    CHECK(relativist_del(table, &third->link));
    CHECK(!relativist_del(table, &third->link));
    CHECK(relativist_count(table) == 0);
    relativist_read_unlock();

    relativist_synchronize();
    destroy(one);
    destroy(other);
    destroy(third);
    destroy(neighbour);
    free_table(table);
}

struct seen {
    unsigned count;
    uint64_t values[8];
};

static bool note_two(struct relativist_link *link, void *argument)
{
    struct seen *seen = argument;

    seen->values[seen->count++] = object_of(link)->value;
    return seen->count < 2;
}

static bool note(struct relativist_link *link, void *argument)
{
    note_two(link, argument);
    return true;
}

static void equal_objects_are_shown_in_their_order(void)
{
    struct relativist_table *table = new_table(8, false);
    struct seen all = {0}, some = {0}, none = {0};

    for (uint64_t value = 0; value < 3; value++)
        relativist_add(table, &make(4, value)->link);
    relativist_read_lock();
    relativist_lookup_all(table, hash(4), note, &all);
    CHECK(all.count == 3 && all.values[0] == 0 && all.values[1] == 1 && all.values[2] == 2);
    relativist_lookup_all(table, hash(4), note_two, &some);
    relativist_lookup_all(table, hash(400), note, &none);
    CHECK(some.count == 2 && none.count == 0);
    memset(&some, 0, sizeof(some));
    relativist_for_each(table, note_two, &some);
    CHECK(some.count == 2);
    relativist_read_unlock();
    free_table(table);
}

static bool count_value(struct relativist_link *link, void *counts)
{
    ((unsigned char *)counts)[object_of(link)->key]++;
    return true;
}

/* A scan visits each object once, although each step finds another size of the table. */
static void scans_survive_resizes(void)
{
    enum { OBJECTS = 500 };
    struct relativist_table *table = new_table(4, false);
    unsigned char each[OBJECTS] = {0}, scanned[OBJECTS] = {0}, expected[OBJECTS];
    uint64_t cursor = 0;
    size_t buckets = 4;
    bool more;

    memset(expected, 1, sizeof(expected));
    for (uint64_t key = 0; key < OBJECTS; key++)
        relativist_add(table, &make(key, key)->link);
    do {
        relativist_read_lock();
        more = relativist_scan(table, &cursor, 50, count_value, scanned);
        relativist_read_unlock();
        buckets = buckets == 4 ? 1000 : 4;
        CHECK(relativist_resize(table, buckets) == 0);
        CHECK(relativist_buckets(table) == (buckets == 4 ? 4 : 1024));
    } while (more);
    CHECK(!memcmp(scanned, expected, sizeof(expected)));
    relativist_read_lock();
    relativist_for_each(table, count_value, each);
    relativist_read_unlock();
    CHECK(!memcmp(each, expected, sizeof(expected)));
    CHECK(relativist_resize(table, (size_t)1 << 60) == ENOMEM && relativist_buckets(table) <= 1024);
    free_table(table);
}

/* An automatic table grows while it fills, and shrinks when it is empty. This happens in the background, so the test polls. */
static void automatic_tables_grow_and_shrink(void)
{
    struct relativist_table *table = new_table(4, true);
    uint64_t key;

    for (key = 0; key < 3000; key++)
        relativist_add(table, &make(key, key)->link);
    while (relativist_buckets(table) < 2048)
        sched_yield();
    relativist_read_lock();
    for (key = 0; key < 3000; key++)
        CHECK(find(table, key)->value == key);
    relativist_read_unlock();
    relativist_clear(table, retire, NULL);
    while (relativist_buckets(table) > 4)
        sched_yield();
    free_table(table);
}

static void unlock_what_is_not_locked(void)
{
    relativist_read_unlock();
}

static void look_up_outside(void)
{
    find(new_table(4, false), 1);
}

static void resize_inside(void)
{
    relativist_read_lock();
    relativist_resize(new_table(4, false), 8);
}

static void wait_inside(void)
{
    relativist_read_lock();
    relativist_synchronize();
}

static void add_nothing(void)
{
    relativist_add(new_table(4, false), NULL);
}

static void match_by_nothing(void)
{
    relativist_read_lock();
    relativist_lookup(new_table(4, false), 1, NULL, NULL);
}

static void free_what_is_not_empty(void)
{
    struct relativist_table *table = new_table(4, false);

    relativist_add(table, &make(1, 1)->link);
    relativist_table_free(table);
}

static void replace_by_another_hash(void)
{
    struct relativist_table *table = new_table(4, false);
    struct object *one = make(1, 1);

    relativist_add(table, &one->link);
    relativist_replace(table, &one->link, &make(100, 1)->link);
}

static struct relativist_table *updated_by_match;

static bool update(struct relativist_link *link, const void *unused)
{
    (void)unused;
    return relativist_del(updated_by_match, link);
}

static void update_in_match(void)
{
    updated_by_match = new_table(4, false);
    relativist_add(updated_by_match, &make(1, 1)->link);
    relativist_add_unique(updated_by_match, &make(1, 1)->link, update, NULL);
}

/* Checks that misuse prints these words and then aborts. It runs in a child process, which has only this thread. */
static void aborts(void (*misuse)(void), const char *words)
{
    char text[4096];
    size_t length = 0;
    ssize_t got;
    int ends[2], status;
    pid_t child;

    CHECK(!pipe(ends));
    child = fork();
    CHECK(child >= 0);
    if (!child) {
        dup2(ends[1], STDERR_FILENO);
        misuse();
        _exit(0);
    }
    close(ends[1]);
    while (length < sizeof(text) - 1 && (got = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
        length += got;
    text[length] = 0;
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, words)) {
        fprintf(stderr, "not \"%s\", but status %x: %s\n", words, status, text);
        abort();
    }
}

static void misuse_aborts(void)
{
    aborts(unlock_what_is_not_locked, "relativist_read_unlock without relativist_read_lock");
    aborts(look_up_outside, "call relativist_read_lock first");
    aborts(resize_inside, "inside a read section it would wait for itself");
    aborts(wait_inside, "inside a read section");
    aborts(add_nothing, "a link that is NULL");
    aborts(match_by_nothing, "a match function that is NULL");
    aborts(free_what_is_not_empty, "not empty");
    aborts(replace_by_another_hash, "hash");
    aborts(update_in_match, "must not update the same table");
}

enum { RESIDENTS = 256, KEYS = 512 };

static atomic_bool done;

static void check(const struct object *object, uint64_t key)
{
    CHECK(object->key == key && object->value == ~key && !atomic_load(&object->freed));
}

static void *look_up(void *table)
{
    for (uint64_t i = 0; i < rounds || !atomic_load(&done); i++) {
        uint64_t key = i * 7 % KEYS;
        struct object *object;

        relativist_read_lock();
        object = find(table, key);
        CHECK(object || key >= RESIDENTS);
        if (object)
            check(object, key);
        relativist_read_unlock();
    }
    return NULL;
}

/* Replaces residents, and adds and removes other objects. */
static void *update_all(void *table)
{
    for (uint64_t i = 0; i < rounds || !atomic_load(&done); i++) {
        uint64_t key = i * 5 % KEYS;
        struct object *object = make(key, ~key);
        struct relativist_link *other;

        if (key < RESIDENTS) {
            other = relativist_add_replace(table, &object->link, match, &key);
            CHECK(other);
            retire(other, NULL);
        } else if (relativist_add_unique(table, &object->link, match, &key) != &object->link) {
            destroy(object);
            other = relativist_remove(table, hash(key), match, &key);
            if (other)
                retire(other, NULL);
        }
    }
    return NULL;
}

static void residents_are_found_while_it_is_resized(void)
{
    struct relativist_table *table = new_table(4, false);
    void *(*const jobs[])(void *) = {look_up, look_up, update_all, update_all};
    pthread_t threads[4];

    for (uint64_t key = 0; key < RESIDENTS; key++)
        relativist_add(table, &make(key, ~key)->link);
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, jobs[i], table));
    for (unsigned long i = 0; i < rounds / 50; i++)
        CHECK(relativist_resize(table, (size_t)4 << i % 5 * 2) == 0);
    atomic_store(&done, true);
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_join(threads[i], NULL));
    free_table(table);
}

int main(int count, char **arguments)
{
    if (count > 1)
        rounds = strtoul(arguments[1], NULL, 10);
    /* This comes first, while there are no other threads. */
    if (count <= 2)
        misuse_aborts();
    sections_nest();
    what_is_called_waits_for_readers();
    operations_do_what_they_say();
    equal_objects_are_shown_in_their_order();
    scans_survive_resizes();
    automatic_tables_grow_and_shrink();
    residents_are_found_while_it_is_resized();
    puts("all tests passed");
    return 0;
}
