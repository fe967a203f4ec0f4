// Parts<T>: what containers that are spread over the cluster stand on: as many elements on each of
// the first nodes that have memory, set to zero or what T begins with. All threads know them.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>

#include "feroce/gas/node.hpp"

namespace feroce::gas::detail {

template <class T>
struct Parts {
    static constexpr std::size_t kMost = 64;
    std::uint64_t count = 0;
    std::array<ptr<T>, kMost> part{};

    static Result<Parts> create(Node& node, std::size_t elements_each) {
        if (elements_each > SIZE_MAX / sizeof(T))
            return Error(ENOMEM, "a container of that many elements has more bytes than there are");
        Parts out;
        for (std::uint16_t i = 0; i < node.size() && out.count < kMost; ++i) {
            if (!node.allocator().reaches(NodeId{i})) continue;
            const auto memory = node.loop().run(
                node.allocator().allocate(NodeId{i}, elements_each * sizeof(T), alignof(T)));
            if (!memory) return out.undone(node, elements_each, memory.error());
            out.part[out.count++] = memory->template as<T>();
            for (std::size_t e = 0; e < elements_each; ++e) {
                const auto done = node.write(out.part[out.count - 1][e], value_type_of<T>{});
                if (!done) return out.undone(node, elements_each, done.error());
            }
        }
        if (out.count == 0) return Error(ENOMEM, "no node of the cluster shares memory");
        return out;
    }
    // What all threads know of a container that has these parts. Without it they are given back.
    template <class Root>
    static Result<ptr<Root>> under(Node& node, std::size_t elements_each, const Parts& parts,
                                   const Root& root) {
        Result<ptr<Root>> made = node.allocate(root);
        if (!made) return parts.undone(node, elements_each, made.error());
        return made;
    }

private:
    Error undone(Node& node, std::size_t elements_each, Error why) const {
        for (std::size_t i = 0; i < count; ++i)  // Fails where a node is lost.
            static_cast<void>(node.loop().run(
                node.allocator().free(part[i].template as<void>(), elements_each * sizeof(T))));
        return why;
    }
};

}  // namespace feroce::gas::detail
