// Array<T>: a fixed number of elements spread over the memory of all nodes in blocks, in turn.
// Counter: a number of which every node has a part, so that adding costs no round trip.
//
// A change that fails with ETIMEDOUT or ECANCELED was not made. Others see the elements of one
// write() in any order; if its coroutine is destroyed, some of them may be the new ones.
#pragma once

#include <algorithm>
#include <cerrno>
#include <span>

#include "feroce/gas/call.hpp"
#include "feroce/gas/ds/parts.hpp"
#include "feroce/gas/limits.hpp"
#include "feroce/gas/node.hpp"

namespace feroce::gas {

template <Shareable T>
class Array {
public:
    struct Root {
        std::uint64_t size = 0;
        std::uint64_t block = 1;
        detail::Parts<T> parts;
    };

    // `block` elements side by side are on one node.
    static Result<ptr<Root>> create(Node& node, std::uint64_t size, std::uint64_t block = 1) {
        if (size == 0 || block == 0) return Error(EINVAL, "an array has elements");
        const std::uint64_t blocks = (size + block - 1) / block;
        std::uint64_t nodes = 0;
        for (std::uint16_t i = 0; i < node.size(); ++i)
            nodes += node.allocator().reaches(NodeId{i}) ? 1 : 0;
        nodes = std::clamp<std::uint64_t>(nodes, 1, detail::Parts<T>::kMost);
        const std::uint64_t each = (blocks + nodes - 1) / nodes * block;
        const auto parts = detail::Parts<T>::create(node, each);
        if (!parts) return parts.error();
        return detail::Parts<T>::under(node, each, *parts, Root{size, block, *parts});
    }
    // For one thread.
    static Result<Array> open(Node& node, ptr<Root> where, std::size_t thread = 0) {
        const auto root = node.lanes(thread).read(where).wait();
        if (!root) return root.error();
        return Array(node.lanes(thread), *root);
    }

    std::uint64_t size() const { return root_.size; }
    // Null if there is no such element.
    ptr<T> at(std::uint64_t index) const {
        if (index >= root_.size) return nullptr;
        const std::uint64_t block = index / root_.block;
        const std::uint64_t row = block / root_.parts.count;
        return root_.parts.part[block % root_.parts.count][row * root_.block + index % root_.block];
    }
    auto get(std::uint64_t index) { return lanes_->read(at(index)); }
    Call<> set(std::uint64_t index, const value_type_of<T>& value) {
        return {lanes_->loop(), replace(at(index), value)};
    }
    // Of elements that are no words: many at a time, a round trip per block or kilobyte.
    Call<> read(std::uint64_t first, std::span<T> into) {
        return {lanes_->loop(), read_all(first, into)};
    }
    Call<> write(std::uint64_t first, std::span<const T> from) {
        return {lanes_->loop(), replace(first, from)};
    }

private:
    Array(Lanes& lanes, const Root& root) : lanes_(&lanes), root_(root) {}

    rdma::Task<Result<>> read_all(std::uint64_t first, std::span<T> into) {
        while (!into.empty()) {
            const std::uint64_t count = side_by_side(first, into.size());
            auto step = lanes_->chain(at(first).node());
            step.read(span<T>(at(first), count), into.data());
            if (const auto done = co_await step; !done) co_return done;
            first += count;
            into = into.subspan(count);
        }
        co_return Result<>();
    }
    rdma::Task<Result<>> replace(ptr<T> element, value_type_of<T> value) {
        if (const auto in_time = co_await within_limits(lanes_->loop()); !in_time)
            co_return in_time;
        co_return co_await lanes_->write(element, value).shielded();
    }
    rdma::Task<Result<>> replace(std::uint64_t first, std::span<const T> from) {
        if (const auto in_time = co_await within_limits(lanes_->loop()); !in_time)
            co_return in_time;
        co_return co_await write_all(first, from).shielded();
    }
    rdma::Task<Result<>> write_all(std::uint64_t first, std::span<const T> from) {
        while (!from.empty()) {
            const std::uint64_t count = side_by_side(first, from.size());
            auto step = lanes_->chain(at(first).node());
            step.write(span<T>(at(first), count), from.data());
            if (const auto done = co_await step; !done) co_return done;
            first += count;
            from = from.subspan(count);
        }
        co_return Result<>();
    }
    std::uint64_t side_by_side(std::uint64_t first, std::uint64_t wanted) const {
        const std::uint64_t in_block = root_.block - first % root_.block;
        const std::uint64_t in_chain = std::max<std::uint64_t>(kChainBytes / sizeof(T), 1);
        return std::min({wanted, in_block, in_chain});
    }

    Lanes* lanes_;
    Root root_;
};

// Adds are exact and linearizable one by one. A sum reads the parts one after another: it counts
// all that was added before it began and nothing that is added after it ended.
class Counter {
public:
    using Root = detail::Parts<nic<std::uint64_t>>;

    static Result<ptr<Root>> create(Node& node) {
        const auto parts = Root::create(node, kLineWords);
        if (!parts) return parts.error();
        return Root::under(node, kLineWords, *parts, *parts);
    }
    // For one thread.
    static Result<Counter> open(Node& node, ptr<Root> where, std::size_t thread = 0) {
        const auto root = node.lanes(thread).read(where).wait();
        if (!root) return root.error();
        return Counter(node.lanes(thread), *root);
    }

    // Gives what this node's part was before.
    Call<std::uint64_t> add(std::uint64_t amount) { return {lanes_->loop(), add_here(amount)}; }
    Call<std::uint64_t> sum() { return {lanes_->loop(), read_all()}; }

private:
    rdma::Task<Result<std::uint64_t>> add_here(std::uint64_t amount) {
        if (const auto in_time = co_await within_limits(lanes_->loop()); !in_time)
            co_return in_time.error();
        co_return co_await lanes_->fetch_add(own_, amount).shielded();
    }
    rdma::Task<Result<std::uint64_t>> read_all() {
        std::uint64_t out = 0;
        for (std::size_t i = 0; i < root_.count; ++i) {
            const auto part = co_await lanes_->read(root_.part[i]);
            if (!part) co_return part.error();
            out += *part;
        }
        co_return out;
    }
    static constexpr std::size_t kLineWords = 8;  // Parts do not share cache lines.

    Counter(Lanes& lanes, const Root& root)
        : lanes_(&lanes),
          root_(root),
          own_(root.part[static_cast<std::size_t>(lanes.self()) % root.count]) {
        for (std::size_t i = 0; i < root.count; ++i)
            if (lanes.is_local(root.part[i].node())) own_ = root.part[i];
    }

    Lanes* lanes_;
    Root root_;
    ptr<nic<std::uint64_t>> own_;
};

}  // namespace feroce::gas
