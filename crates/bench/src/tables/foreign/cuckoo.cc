// libcuckoo's cuckoohash_map, with the standard allocator. Iteration and clear() lock the whole
// table.

#include <functional>
#include <memory>
#include <utility>

#include <libcuckoo/cuckoohash_map.hh>

#include "operations.h"

namespace {

struct Hash {
    std::size_t operator()(std::uint64_t key) const { return relativist_hash(key); }
};

using Map = libcuckoo::cuckoohash_map<std::uint64_t, std::uint64_t, Hash, std::equal_to<std::uint64_t>,
                                      std::allocator<std::pair<const std::uint64_t, std::uint64_t>>>;

Map &map(void *table) { return *static_cast<Map *>(table); }

}  // namespace

const relativist_operations relativist_cuckoo = {
    [](std::size_t capacity) -> void * { return capacity ? new Map(capacity) : new Map(); },
    [](void *table) { delete &map(table); },
    [](void *table, std::uint64_t key, std::uint64_t *value) { return map(table).find(key, *value); },
    [](void *table, std::uint64_t key, std::uint64_t value) { return map(table).insert(key, value); },
    [](void *table, std::uint64_t key, std::uint64_t value) { return map(table).update(key, value); },
    [](void *table, std::uint64_t key) { return map(table).erase(key); },
    [](void *table) { map(table).clear(); },
    [](void *table, relativist_visit visit, void *context) {
        auto locked = map(table).lock_table();
        for (const auto &entry : locked) visit(context, entry.second);
    },
    relativist_hash,
};
