/*
 * A port of liburcu's example cds_lfht_add_unique.c. It adds numbers, one of them twice: the second
 * time, the table refuses it. Then it prints and removes all numbers.
 *
 *     cds_lfht_new_flavor(1, 1, 0, CDS_LFHT_AUTO_RESIZE, ..)  relativist_table_new(1, true)
 *     urcu_memb_register_thread()                             nothing
 *     cds_lfht_node_init(node)                                relativist_link_init(link, hash)
 *     cds_lfht_add_unique(ht, hash, match, key, node)         relativist_add_unique(table, link, match, key)
 *     cds_lfht_for_each_entry(ht, &iter, entry, member)       relativist_for_each(table, visit, argument)
 *     cds_lfht_del(ht, node)                                  relativist_del(table, link)
 *     urcu_memb_call_rcu(head, function)                      relativist_call(head, function, bytes)
 *     cds_lfht_destroy(ht, NULL)                              relativist_table_free(table)
 */
#include <stdio.h>
#include <stdlib.h>

#include <relativist.h>

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

struct number {
    struct relativist_link link;
    struct relativist_call_head call;
    int value;
    /* The index of the value among those that were added. */
    int order;
};

/* The table mixes hashes by one multiplication, so a plain number is good enough. */
static uint64_t hash(int value)
{
    return (uint64_t)value;
}

static bool match(struct relativist_link *link, const void *value)
{
    return container_of(link, struct number, link)->value == *(const int *)value;
}

static void free_number(struct relativist_call_head *call)
{
    free(container_of(call, struct number, call));
}

static bool print_number(struct relativist_link *link, void *unused)
{
    struct number *number = container_of(link, struct number, link);

    (void)unused;
    printf("there is %d, the one of order %d\n", number->value, number->order);
    return true;
}

static bool delete(struct relativist_link *link, void *table)
{
    if (relativist_del(table, link))
        relativist_call(&container_of(link, struct number, link)->call, free_number, sizeof(struct number));
    return true;
}

int main(void)
{
    static const int values[] = {-5, 42, 42, 36, 24};
    const int count = sizeof(values) / sizeof(values[0]);
    struct relativist_table *table = relativist_table_new(1, true);

    if (!table)
        return EXIT_FAILURE;
    for (int order = 0; order < count; order++) {
        struct number *number = malloc(sizeof(*number));
        struct relativist_link *there;

        if (!number)
            return EXIT_FAILURE;
        number->value = values[order];
        number->order = order;
        relativist_link_init(&number->link, hash(number->value));
        /* An object that is in the table already stays valid until the end of the section. */
        relativist_read_lock();
        there = relativist_add_unique(table, &number->link, match, &number->value);
        if (there != &number->link) {
            printf("%d is there, the one of order %d\n", number->value, container_of(there, struct number, link)->order);
            free(number);
        }
        relativist_read_unlock();
    }

    relativist_read_lock();
    relativist_for_each(table, print_number, NULL);
    relativist_for_each(table, delete, table);
    relativist_read_unlock();
    printf("%zu are left\n", relativist_count(table));
    relativist_barrier();
    relativist_table_free(table);
    return EXIT_SUCCESS;
}
