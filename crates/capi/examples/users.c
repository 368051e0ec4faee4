/*
 * A directory of users that threads look up while another thread changes users' shells and resizes
 * the table.
 *
 * An object is never changed while readers may see it: a changed copy takes its place, and the old
 * one is freed when readers have left it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <relativist.h>

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

struct user {
    struct relativist_link by_name;
    struct relativist_call_head call;
    char name[16];
    char shell[16];
};

static struct relativist_table *users;
static atomic_bool done;

/* FNV-1a. If untrusted clients choose names, use a keyed hash. */
static uint64_t hash(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325;

    while (*name)
        hash = (hash ^ (unsigned char)*name++) * 0x100000001b3;
    return hash;
}

static bool has_name(struct relativist_link *link, const void *name)
{
    return !strcmp(container_of(link, struct user, by_name)->name, name);
}

static void free_user(struct relativist_call_head *call)
{
    free(container_of(call, struct user, call));
}

static bool retire(struct relativist_link *link, void *unused)
{
    (void)unused;
    relativist_call(&container_of(link, struct user, by_name)->call, free_user, sizeof(struct user));
    return true;
}

static void set_shell(const char *name, const char *shell)
{
    struct user *user = malloc(sizeof(*user));
    struct relativist_link *old;

    if (!user)
        abort();
    snprintf(user->name, sizeof(user->name), "%s", name);
    snprintf(user->shell, sizeof(user->shell), "%s", shell);
    relativist_link_init(&user->by_name, hash(name));
    old = relativist_add_replace(users, &user->by_name, has_name, name);
    if (old)
        retire(old, NULL);
}

static bool get_shell(const char *name, char shell[16])
{
    struct relativist_link *link;

    relativist_read_lock();
    link = relativist_lookup(users, hash(name), has_name, name);
    if (link)
        memcpy(shell, container_of(link, struct user, by_name)->shell, 16);
    relativist_read_unlock();
    return link;
}

static void *read_until_done(void *count)
{
    char name[16], shell[16];
    unsigned long i = 0;

    /* At least once, even if the writer is done before this thread runs. */
    do {
        snprintf(name, sizeof(name), "user%lu", i++ % 1000);
        if (!get_shell(name, shell) || (strcmp(shell, "/bin/sh") && strcmp(shell, "/bin/false")))
            abort();
    } while (!atomic_load(&done));
    *(unsigned long *)count = i;
    return NULL;
}

static void set_all(const char *shell)
{
    char name[16];

    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "user%d", i);
        set_shell(name, shell);
    }
}

int main(void)
{
    unsigned long counts[2] = {0, 0};
    pthread_t readers[2];
    char shell[16];

    users = relativist_table_new(16, false);
    if (!users)
        abort();
    set_all("/bin/sh");
    for (int i = 0; i < 2; i++)
        if (pthread_create(&readers[i], NULL, read_until_done, &counts[i]))
            abort();
    for (int i = 0; i < 20; i++) {
        if (relativist_resize(users, i % 2 ? 16 : 1024))
            abort();
        set_all(i % 2 ? "/bin/sh" : "/bin/false");
    }
    atomic_store(&done, true);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    if (!get_shell("user7", shell))
        abort();
    printf("%zu users in %zu buckets; the shell of user7 is %s\n", relativist_count(users), relativist_buckets(users), shell);
    if (!counts[0] || !counts[1] || relativist_count(users) != 1000)
        abort();

    relativist_clear(users, retire, NULL);
    relativist_barrier();
    relativist_table_free(users);
    return 0;
}
