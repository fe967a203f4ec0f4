// The last node is stopped until the others have found it lost, and goes on then: its barrier must
// end too, and say why.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "feroce/gas/node.hpp"

using namespace feroce::gas;

namespace {

// The others stay until it has ended, so that it is told by them and does not find them gone.
void await_end(pid_t process) {
    for (int i = 0; i < 6000 && kill(process, 0) == 0; ++i) usleep(10'000);
}

}  // namespace

int main() {
    Node node = Node::join().value();
    const auto shared = node.share<plain<std::uint64_t>>("process").value();
    const auto ready = node.share<nic<std::uint64_t>>("ready").value();
    const bool last = static_cast<int>(node.id()) + 1 == node.size();
    if (last) node.write(shared, static_cast<std::uint64_t>(getpid())).value();
    node.barrier().value();
    const auto stopped = static_cast<pid_t>(node.read(shared).value());
    // It stops itself once all have left the first barrier, before it comes to the next.
    node.fetch_add(ready, 1).value();
    if (last) {
        while (node.read(ready).value() < node.size()) usleep(1000);
        std::raise(SIGSTOP);
    }
    const auto met = node.barrier();
    if (!last) node.fetch_add(ready, 1).value();
    if (node.id() == NodeId{0}) {  // It goes on when all others have found it lost.
        while (node.read(ready).value() < 2 * node.size() - 1u) usleep(1000);
        kill(stopped, SIGCONT);
    }
    if (met) return 1;
    std::printf("%s\n", met.error().why.c_str());
    std::fflush(stdout);
    if (!last) await_end(stopped);
    return 0;
}
