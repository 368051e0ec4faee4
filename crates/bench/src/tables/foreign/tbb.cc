// oneTBB's concurrent_hash_map, with the standard allocator. Its iteration and clear() need exclusive
// access to the table.

#include <memory>
#include <utility>

#include <oneapi/tbb/concurrent_hash_map.h>

#include "operations.h"

namespace {

struct Compare {
    static std::size_t hash(std::uint64_t key) { return relativist_hash(key); }
    static bool equal(std::uint64_t one, std::uint64_t other) { return one == other; }
};

using Map = tbb::concurrent_hash_map<std::uint64_t, std::uint64_t, Compare,
                                     std::allocator<std::pair<const std::uint64_t, std::uint64_t>>>;

Map &map(void *table) { return *static_cast<Map *>(table); }

bool get(void *table, std::uint64_t key, std::uint64_t *value) {
    Map::const_accessor found;
    if (!map(table).find(found, key)) return false;
    *value = found->second;
    return true;
}

bool replace(void *table, std::uint64_t key, std::uint64_t value) {
    Map::accessor found;
    if (!map(table).find(found, key)) return false;
    found->second = value;
    return true;
}

}  // namespace

const relativist_operations relativist_tbb = {
    [](std::size_t capacity) -> void * { return capacity ? new Map(capacity) : new Map(); },
    [](void *table) { delete &map(table); },
    get,
    [](void *table, std::uint64_t key, std::uint64_t value) { return map(table).insert({key, value}); },
    replace,
    [](void *table, std::uint64_t key) { return map(table).erase(key); },
    [](void *table) { map(table).clear(); },
    [](void *table, relativist_visit visit, void *context) {
        for (const auto &entry : map(table)) visit(context, entry.second);
    },
    relativist_hash,
};
