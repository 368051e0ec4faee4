/*
 * The loops over liburcu's "memb" flavour, in C and with its small functions inlined, as its authors
 * measure it.
 */
#define _LGPL_SOURCE
#define URCU_INLINE_SMALL_FUNCTIONS
#include <stdint.h>
#include <urcu/urcu-memb.h>

/* Keeps the compiler from merging a section with the next, like the fence in schemes.rs. */
#define section_body() __asm__ __volatile__("" : : : "memory")

void relativist_urcu_register(void)
{
	urcu_memb_register_thread();
}

void relativist_urcu_unregister(void)
{
	urcu_memb_unregister_thread();
}

static inline void enter_and_leave(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		urcu_memb_read_lock();
		section_body();
		urcu_memb_read_unlock();
	}
}

void relativist_urcu_sections(uint64_t count)
{
	enter_and_leave(count);
}

void relativist_urcu_nested_sections(uint64_t count)
{
	urcu_memb_read_lock();
	enter_and_leave(count);
	urcu_memb_read_unlock();
}

void relativist_urcu_synchronize(void)
{
	urcu_memb_synchronize_rcu();
}

/* Objects begin with their rcu_head. `allocate` and `release` are those of the other schemes. */
static void (*release_object)(void *);

static void release(struct rcu_head *head)
{
	release_object(head);
}

void relativist_urcu_retire(uint64_t count, void *(*allocate)(uint64_t, const void *), void (*release_one)(void *),
			    const void *context)
{
	release_object = release_one;
	for (uint64_t i = 0; i < count; i++)
		urcu_memb_call_rcu(allocate(i, context), release);
}

void relativist_urcu_barrier(void)
{
	urcu_memb_barrier();
}

uint64_t relativist_urcu_head_size(void)
{
	return sizeof(struct rcu_head);
}
