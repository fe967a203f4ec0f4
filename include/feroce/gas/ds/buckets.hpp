// Buckets<K, V>: one thread's view of HashMap's buckets: how a key is found without a lock, and how
// its value is changed under one. A bucket that is full is continued by others on the same node;
// such a list has the lock and the version of its first bucket.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "feroce/gas/allocator.hpp"
#include "feroce/gas/ds/parts.hpp"
#include "feroce/gas/sync/guarded.hpp"

namespace feroce::gas::detail {

template <class K, class V>
class Buckets {
public:
    struct Entry {
        std::uint64_t used = 0;
        K key{};
        V value{};
    };
    // As many as fit in what one chain can carry, at most eight.
    static constexpr std::size_t kEntries =
        std::min<std::size_t>(8, (kChainBytes - 64) / sizeof(Entry));
    static_assert(kEntries > 0, "the entries are too large: keep pointers in the map");
    // The most buckets of a list, which a get reads one after the other. A list that needs more is
    // full: the map was made with too few buckets (ADR 0025).
    static constexpr std::size_t kLongest = 256;
    struct Content {
        std::uint64_t next = 0;  // Bits of the bucket that continues this one.
        std::array<Entry, kEntries> entries{};
    };
    using Bucket = typename Guarded<Content>::Block;  // Lock and version count for its list.
    // What all threads need to know of a map.
    struct Root {
        std::uint64_t buckets_per_node = 0;
        Parts<Bucket> tables;
    };
    using Value = std::optional<V>;  // Of a key; nothing if it is not in the map.

    Buckets(Lanes& lanes, Allocator& allocator, const Root& root)
        : lanes_(&lanes), allocator_(&allocator), guarded_(lanes), root_(root) {}

    rdma::Loop& loop() const { return lanes_->loop(); }
    std::uint64_t count() const { return root_.tables.count * root_.buckets_per_node; }
    ptr<Bucket> at(std::uint64_t number) const {
        return root_.tables.part[number % root_.tables.count]
                                [number / root_.tables.count % root_.buckets_per_node];
    }

    rdma::Task<Result<Value>> get(K key) {
        Value found;
        const auto see = [&](const Entry& entry) {
            if (!same(entry.key, key)) return false;
            found = entry.value;
            return true;
        };
        Content content;
        Backoff backoff(*lanes_);
        for (;;) {
            const auto whole = co_await walk(at(hash(key)), content, see);
            if (!whole) co_return whole.error();
            if (*whole) co_return found;
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        }
    }
    // All entries of a bucket's list, as they were at one moment.
    rdma::Task<Result<>> read(ptr<Bucket> first, std::vector<Entry>& into) {
        const auto keep = [&into](const Entry& entry) {
            into.push_back(entry);
            return false;
        };
        Content content;
        Backoff backoff(*lanes_);
        for (unsigned looks = 0; looks < kLooks; ++looks) {
            into.clear();
            const auto whole = co_await walk(first, content, keep);
            if (!whole) co_return whole.error();
            if (*whole) co_return Result<>();
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        }
        // Writers are always faster.
        into.clear();
        auto hold = co_await guarded_.lock(first, content);
        if (!hold) co_return hold.error();
        const auto keep_used = [&keep](ptr<Bucket>, std::size_t, const Entry& entry) {
            return entry.used != 0 && keep(entry);
        };
        const auto seen = co_await walk_locked(first, content, keep_used);
        if (!seen) co_return co_await guarded_.give_up(*std::move(hold), seen.error());
        co_return co_await guarded_.unlock(*std::move(hold));
    }

    // Gives `edit` the value of a key and writes what that leaves there, as one step. The result
    // is what `tell` makes of the values before and after. If `edit` throws, nothing is changed.
    template <class Edit, class Tell>
    rdma::Task<Result<std::invoke_result_t<Tell, const Value&, const Value&>>> change(K key,
                                                                                      Edit edit,
                                                                                      Tell tell) {
        Content content;
        auto hold = co_await guarded_.lock(at(hash(key)), content);
        if (!hold) co_return hold.error();
        co_return co_await change_locked(*std::move(hold), content, key, edit, tell).shielded();
    }

private:
    using Hold = typename Guarded<Content>::Hold;
    struct Found {
        ptr<Entry> at;    // Of the key; null if it has none.
        ptr<Entry> free;  // For a new one; null if all are used.
        ptr<Bucket> last;
        std::size_t length = 0;  // Of the list, if the key was not found.
        Value value;
    };

    static std::uint64_t hash(const K& key) {
        std::uint64_t out = 0xcbf2'9ce4'8422'2325;
        const auto* bytes = reinterpret_cast<const unsigned char*>(&key);
        for (std::size_t i = 0; i < sizeof key; ++i) out = (out ^ bytes[i]) * 0x100'0000'01b3;
        out ^= out >> 29;
        return out * 0xbf58'476d'1ce4'e5b9 >> 16;
    }
    static bool same(const K& a, const K& b) { return std::memcmp(&a, &b, sizeof a) == 0; }
    static ptr<Entry> entry_at(ptr<Bucket> bucket, std::size_t index) {
        return Guarded<Content>::content_of(bucket).template elements<&Content::entries>()[index];
    }

    template <class Edit, class Tell>
    rdma::Task<Result<std::invoke_result_t<Tell, const Value&, const Value&>>> change_locked(
        Hold hold, Content& content, K key, Edit& edit, Tell& tell) {
        auto found = co_await find(hold.block, content, key);
        if (!found) co_return co_await guarded_.give_up(std::move(hold), found.error());
        Value after = found->value;
        edit(after);
        if (!found->at && !after) {
            const auto freed = co_await guarded_.unlock(std::move(hold));
            if (!freed) co_return freed.error();
            co_return tell(found->value, after);
        }
        ptr<Entry> where = found->at ? found->at : found->free;
        if (!where) {
            if (found->length == kLongest)
                co_return co_await guarded_.give_up(std::move(hold), full());
            const auto grown = co_await grow(hold, found->last);
            if (!grown) co_return co_await guarded_.give_up(std::move(hold), grown.error());
            where = *grown;
        }
        const Entry entry = after ? Entry{1, key, *after} : Entry();
        const auto done = co_await guarded_.store(std::move(hold), where, entry);
        if (!done) co_return done.error();
        co_return tell(found->value, after);
    }

    // Shows the entries of a list until `see` returns true, without a lock. False if somebody
    // changed the list meanwhile: what was seen is not to be believed then.
    template <class See>
    rdma::Task<Result<bool>> walk(ptr<Bucket> first, Content& content, See& see) {
        const auto before = co_await guarded_.read(first, content);
        if (!before) co_return before.error();
        for (std::size_t length = 0; length < kLongest; ++length) {
            for (const Entry& entry : content.entries)
                if (entry.used != 0 && see(entry)) co_return true;
            if (content.next == 0) co_return true;
            const auto next = ptr<Bucket>::from_bits(content.next);
            // Continuations are on the bucket's node, so one chain reads both.
            std::uint64_t after = 0;
            auto more = lanes_->chain(first.node());
            more.read(Guarded<Content>::content_of(next), content);
            more.read(Guarded<Content>::version_of(first), after);
            if (const auto done = co_await more; !done) co_return done.error();
            if (after != *before) co_return false;
        }
        co_return endless();
    }
    // Shows all places of a locked list, whose first part is in `content`, likewise.
    template <class See>
    rdma::Task<Result<>> walk_locked(ptr<Bucket> first, Content& content, See& see) {
        ptr<Bucket> part = first;
        for (std::size_t length = 0; length < kLongest; ++length) {
            for (std::size_t i = 0; i < kEntries; ++i)
                if (see(part, i, content.entries[i])) co_return Result<>();
            if (content.next == 0) co_return Result<>();
            part = ptr<Bucket>::from_bits(content.next);
            const auto more = co_await lanes_->read(Guarded<Content>::content_of(part));
            if (!more) co_return more.error();
            content = *more;
        }
        co_return endless();
    }
    rdma::Task<Result<Found>> find(ptr<Bucket> first, Content& content, K key) {
        Found found;
        const auto see = [&](ptr<Bucket> part, std::size_t index, const Entry& entry) {
            found.last = part;
            found.length += index == 0 ? 1 : 0;
            if (entry.used == 0 && !found.free) found.free = entry_at(part, index);
            if (entry.used == 0 || !same(entry.key, key)) return false;
            found.at = entry_at(part, index);
            found.value = entry.value;
            return true;
        };
        const auto seen = co_await walk_locked(first, content, see);
        if (!seen) co_return seen.error();
        co_return found;
    }

    // Continues a bucket; gives the first entry of the new part.
    rdma::Task<Result<ptr<Entry>>> grow(const Hold& hold, ptr<Bucket> last) {
        const auto made = co_await allocator_->make(last.node(), Bucket());
        if (!made) co_return made.error();
        if (const auto held = guarded_.check(hold); !held) {
            static_cast<void>(co_await allocator_->destroy(*made));
            co_return held.error();
        }
        const auto link = Guarded<Content>::content_of(last).template field<&Content::next>();
        const auto linked = co_await lanes_->write(link, made->bits());
        if (!linked) co_return linked.error();
        co_return entry_at(*made, 0);
    }
    static Error endless() { return {EIO, "a bucket of the map has no end"}; }
    static Error full() {
        return {ENOSPC, "a bucket of the map is full: make the map with more buckets"};
    }

    static constexpr unsigned kLooks = 64;

    Lanes* lanes_;
    Allocator* allocator_;
    Guarded<Content> guarded_;
    Root root_;
};

}  // namespace feroce::gas::detail
