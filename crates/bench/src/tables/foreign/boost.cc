// Boost's concurrent_flat_map (1.83 or later), with the standard allocator. The hash function is marked as
// avalanching, so that Boost does not mix its results again.

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <boost/unordered/concurrent_flat_map.hpp>

#include "operations.h"

namespace {

struct Hash {
    using is_avalanching = std::true_type;
    std::size_t operator()(std::uint64_t key) const { return relativist_hash(key); }
};

using Map = boost::concurrent_flat_map<std::uint64_t, std::uint64_t, Hash, std::equal_to<std::uint64_t>,
                                       std::allocator<std::pair<const std::uint64_t, std::uint64_t>>>;

Map &map(void *table) { return *static_cast<Map *>(table); }

bool get(void *table, std::uint64_t key, std::uint64_t *value) {
    return map(table).cvisit(key, [=](const auto &entry) { *value = entry.second; }) != 0;
}

}  // namespace

const relativist_operations relativist_boost = {
    [](std::size_t capacity) -> void * { return new Map(capacity); },
    [](void *table) { delete &map(table); },
    get,
    [](void *table, std::uint64_t key, std::uint64_t value) { return map(table).insert_or_assign(key, value); },
    [](void *table, std::uint64_t key, std::uint64_t value) { return map(table).try_emplace(key, value); },
    [](void *table, std::uint64_t key) { return map(table).erase(key) != 0; },
    [](void *table) { map(table).clear(); },
    [](void *table, relativist_visit visit, void *context) {
        map(table).cvisit_all([=](const auto &entry) { visit(context, entry.second); });
    },
    relativist_hash,
};
