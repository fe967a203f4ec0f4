// The last node dies in the middle of the cluster's life. The others must be told so, by name.
#include <csignal>
#include <cstdio>

#include "counted.hpp"
#include "feroce/gas/node.hpp"

using namespace feroce::gas;

int main() {
    Node node = Node::join().value();
    const int last = node.size() - 1;
    Counted counted(node, last);
    node.barrier().value();
    counted.add();
    if (static_cast<int>(node.id()) == last && counted.reaches(node.size())) std::raise(SIGKILL);
    const auto met = node.barrier();
    if (met) return 1;
    std::printf("%s\n", met.error().why.c_str());
    return 0;
}
