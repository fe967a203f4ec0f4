// share<Container>(node, "name", arguments...): one container for all nodes, as Node::share gives
// one value. The first node that lives makes it, by Container::create(node, arguments...), the
// others find it, and each gets its own handle for a thread.
//
//   auto map = share<HashMap<std::uint64_t, Item>>(node, "items", 100).value();
//   auto jobs = share<Queue<Job>>(node, "jobs").value();
#pragma once

#include <string_view>

#include "feroce/gas/node.hpp"

namespace feroce::gas {

// For other threads: Container::open(node, node.find<Container::Root>(name), thread).
// Where the name is given to something else just then, what was made stays in memory unused.
template <class Container, class... Arguments>
Result<Container> share(Node& node, std::string_view name, const Arguments&... arguments) {
    using Root = typename Container::Root;
    const auto root =
        node.share_made<Root>(name, [&] { return Container::create(node, arguments...); });
    if (!root) return root.error();
    return Container::open(node, *root);
}

}  // namespace feroce::gas
