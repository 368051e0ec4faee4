/*
 * The interface of tables in C and C++; `mod.rs` has the same structure. Keys and values are 64 bits
 * wide. The hash function is the one of the Rust tables (a test compares them).
 *
 * Rust calls a table's functions once per operation. These calls are not inlined, which costs one or
 * two nanoseconds more than tables in Rust need.
 */
#ifndef RELATIVIST_OPERATIONS_H
#define RELATIVIST_OPERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*relativist_visit)(void *context, uint64_t value);

struct relativist_operations {
	void *(*create)(size_t capacity);
	/* Call only when no other thread uses the table. */
	void (*destroy)(void *table);
	bool (*get)(void *table, uint64_t key, uint64_t *value);
	/* Inserts a key, or replaces its value. Returns false if it was present. */
	bool (*insert)(void *table, uint64_t key, uint64_t value);
	/* Inserts a key if it is absent. Returns false if it was present. */
	bool (*try_insert)(void *table, uint64_t key, uint64_t value);
	bool (*remove)(void *table, uint64_t key);
	/* Call only when no other thread uses the table, if the table requires that. */
	void (*clear)(void *table);
	void (*for_each)(void *table, relativist_visit visit, void *context);
	uint64_t (*hash)(uint64_t key);
};

extern const struct relativist_operations relativist_lfht, relativist_boost;

#ifdef __cplusplus
}
#endif

/* foldhash::fast::FixedState::default() of one u64. */
static inline uint64_t relativist_hash(uint64_t key)
{
	const unsigned __int128 product = (unsigned __int128)(key ^ UINT64_C(0x082efa98ec4e6c89)) * UINT64_C(0xc0ac29b7c97c50dd);
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
