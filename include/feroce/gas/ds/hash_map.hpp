// HashMap<K, V>: a map whose buckets are spread over the memory of all nodes. A get is one round
// trip, a change two. Buckets that are full are continued elsewhere, at one round trip more each;
// such a list has the lock and the version of its first bucket.
//
// Every operation is linearizable. Keys are compared by their bytes, so K must have no padding. A
// thread that dies in the middle of a change delays others on that bucket by a lease (Guarded). A
// change that fails with ETIMEDOUT or ECANCELED was not made. Any number of tasks of the thread may
// use one handle at the same time.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "feroce/gas/ds/parts.hpp"
#include "feroce/gas/node.hpp"
#include "feroce/gas/sync/guarded.hpp"

namespace feroce::gas {

template <Shareable K, Shareable V>
requires std::has_unique_object_representations_v<K>
class HashMap {
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
    struct Content {
        std::uint64_t next = 0;  // Bits of the bucket that continues this one.
        std::array<Entry, kEntries> entries{};
    };
    using Bucket = typename Guarded<Content>::Block;  // Lock and version count for its list.
    // What all threads need to know of a map.
    struct Root {
        std::uint64_t buckets_per_node = 0;
        detail::Parts<Bucket> tables;
    };

    // Makes a map with tables on all nodes that have memory, before others open it.
    static Result<ptr<Root>> create(Node& node, std::size_t buckets_per_node) {
        const auto tables = detail::Parts<Bucket>::create(node, buckets_per_node);
        if (!tables) return tables.error();
        return detail::Parts<Bucket>::under(node, buckets_per_node, *tables,
                                            Root{buckets_per_node, *tables});
    }
    // For one thread.
    static Result<HashMap> open(Node& node, ptr<Root> where, std::size_t thread = 0) {
        const auto root = node.lanes(thread).read(where).wait();
        if (!root) return root.error();
        return HashMap(node.lanes(thread), node.allocator(thread), *root);
    }

    rdma::Task<Result<std::optional<V>>> get(K key) {
        const ptr<Bucket> first = bucket_of(key);
        Backoff backoff(*lanes_);
        Look look;
        for (;;) {
            const auto whole = co_await walk(first, key, look);
            if (!whole) co_return whole.error();
            if (*whole) co_return look.found;
            if (const auto paused = co_await backoff.pause(); !paused) co_return paused.error();
        }
    }
    // Sets the value; true if the key is new.
    rdma::Task<Result<bool>> put(K key, V value) {
        Content content;
        const auto locked = co_await guarded_.lock(bucket_of(key), content);
        if (!locked) co_return locked.error();
        co_return co_await put_locked(*locked, content, Entry{1, key, value}).shielded();
    }
    // True if it was there.
    rdma::Task<Result<bool>> erase(K key) {
        Content content;
        const auto locked = co_await guarded_.lock(bucket_of(key), content);
        if (!locked) co_return locked.error();
        co_return co_await erase_locked(*locked, content, key).shielded();
    }

private:
    using Hold = typename Guarded<Content>::Hold;
    struct Place {
        ptr<Entry> at;    // Of the key; null if it has none.
        ptr<Entry> free;  // For a new one; null if all are used.
        ptr<Bucket> last;
    };

    struct Look {  // Of one operation.
        Content content;
        std::optional<V> found;
    };

    HashMap(Lanes& lanes, Allocator& allocator, const Root& root)
        : lanes_(&lanes), allocator_(&allocator), guarded_(lanes), root_(root) {}

    static std::uint64_t hash(const K& key) {
        std::uint64_t out = 0xcbf2'9ce4'8422'2325;
        const auto* bytes = reinterpret_cast<const unsigned char*>(&key);
        for (std::size_t i = 0; i < sizeof key; ++i) out = (out ^ bytes[i]) * 0x100'0000'01b3;
        out ^= out >> 29;
        return out * 0xbf58'476d'1ce4'e5b9 >> 16;
    }
    static bool same(const K& a, const K& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

    ptr<Bucket> bucket_of(const K& key) const {
        const std::uint64_t number = hash(key);
        const std::uint64_t bucket = number / root_.tables.count % root_.buckets_per_node;
        return root_.tables.part[number % root_.tables.count][bucket];
    }
    static ptr<Entry> entry_at(ptr<Bucket> bucket, std::size_t index) {
        return bucket.template field<&Bucket::content>()
            .template field<&Content::entries>()
            .template as<Entry>()[index];
    }

    rdma::Task<Result<bool>> put_locked(Hold hold, Content& content, Entry entry) {
        auto place = co_await find(hold, content, entry.key);
        if (!place) co_return co_await guarded_.give_up(hold, place.error());
        const bool is_new = !place->at;
        if (is_new && !place->free) {
            const auto grown = co_await grow(hold, place->last);
            if (!grown) co_return co_await guarded_.give_up(hold, grown.error());
            place->free = *grown;
        }
        const auto done = co_await guarded_.store(hold, is_new ? place->free : place->at, entry);
        if (!done) co_return done.error();
        co_return is_new;
    }
    rdma::Task<Result<bool>> erase_locked(Hold hold, Content& content, K key) {
        const auto place = co_await find(hold, content, key);
        if (!place) co_return co_await guarded_.give_up(hold, place.error());
        if (!place->at) {
            if (const auto freed = co_await guarded_.unlock(hold); !freed) co_return freed.error();
            co_return false;
        }
        const Entry empty;
        const auto done = co_await guarded_.store(hold, place->at, empty);
        if (!done) co_return done.error();
        co_return true;
    }

    // Looks for the key without a lock. False if somebody changed the bucket meanwhile.
    rdma::Task<Result<bool>> walk(ptr<Bucket> first, K key, Look& look) {
        Content& content = look.content;
        look.found.reset();
        const auto before = co_await guarded_.read(first, content);
        if (!before) co_return before.error();
        for (std::size_t length = 0; length < kLongest; ++length) {
            for (const Entry& entry : content.entries)
                if (entry.used != 0 && same(entry.key, key)) look.found = entry.value;
            if (look.found || content.next == 0) co_return true;
            const auto next = ptr<Bucket>::from_bits(content.next);
            // Continuations stand on the bucket's node, so one chain reads both.
            std::uint64_t after = 0;
            auto more = lanes_->chain(first.node());
            more.read(Guarded<Content>::content_of(next), content);
            more.read(Guarded<Content>::version_of(first), after);
            if (const auto done = co_await more; !done) co_return done.error();
            if (after != *before) co_return false;
        }
        co_return Error(EIO, "a bucket of the map has no end");
    }

    // Of a locked bucket, whose first part is in `content`.
    rdma::Task<Result<Place>> find(Hold hold, Content& content, K key) {
        Place place;
        place.last = hold.block;
        for (std::size_t length = 0; length < kLongest; ++length) {
            for (std::size_t i = 0; i < kEntries; ++i) {
                const Entry& entry = content.entries[i];
                if (entry.used == 0 && !place.free) place.free = entry_at(place.last, i);
                if (entry.used != 0 && same(entry.key, key)) place.at = entry_at(place.last, i);
            }
            if (place.at || content.next == 0) co_return place;
            place.last = ptr<Bucket>::from_bits(content.next);
            const auto more = co_await lanes_->read(place.last.template field<&Bucket::content>());
            if (!more) co_return more.error();
            content = *more;
        }
        co_return Error(EIO, "a bucket of the map has no end");
    }

    // Continues a bucket; gives the first entry of the new part.
    rdma::Task<Result<ptr<Entry>>> grow(Hold hold, ptr<Bucket> last) {
        const auto made = co_await allocator_->make(last.node(), Bucket());
        if (!made) co_return made.error();
        if (const auto held = guarded_.check(hold); !held) {
            static_cast<void>(co_await allocator_->destroy(*made));
            co_return held.error();
        }
        const auto link = last.template field<&Bucket::content>().template field<&Content::next>();
        const auto linked = co_await lanes_->write(link, made->bits());
        if (!linked) co_return linked.error();
        co_return entry_at(*made, 0);
    }

    static constexpr std::size_t kLongest = 1 << 16;  // Of a list of buckets.

    Lanes* lanes_;
    Allocator* allocator_;
    Guarded<Content> guarded_;
    Root root_;
};

}  // namespace feroce::gas
