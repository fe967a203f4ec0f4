// The last node dies in the middle of the cluster's life. The others must be told so, by name.
#include <csignal>
#include <cstdio>

#include "feroce/gas/node.hpp"

using namespace feroce::gas;

int main() {
    Node node = Node::join().value();
    node.barrier().value();
    const bool last = static_cast<int>(node.id()) + 1 == node.size();
    if (last) std::raise(SIGKILL);
    const auto met = node.barrier();
    if (met) return 1;
    std::printf("%s\n", met.error().why.c_str());
    return 0;
}
