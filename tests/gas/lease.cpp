// The last node is killed while it has a lock with a lease of the usual time, on memory of the
// first. The others take the lock over, one after the other.
#include <csignal>
#include <cstdio>

#include "feroce/gas/node.hpp"
#include "feroce/gas/sync/lease_lock.hpp"

using namespace feroce::gas;
using namespace std::chrono_literals;

int main() {
    Node node = Node::join().value();
    if (node.id() == NodeId{0}) node.publish("lock", *node.allocate(LeaseLock::Line{})).value();
    LeaseLock lock(node.lanes(), node.find<LeaseLock::Line>("lock").value());
    feroce::rdma::Loop& loop = node.loop();
    const bool last = static_cast<int>(node.id()) + 1 == node.size();
    if (last) loop.run(lock.lock()).value();
    node.barrier().value();
    if (last) std::raise(SIGKILL);
    if (!loop.run(lock.lock_until(loop.after(60s))).value()) return 1;
    std::puts("took the lock over");
    loop.run(lock.unlock()).value();
    (void)node.barrier();  // Names the lost node. None ends before the others are done with it.
    return 0;
}
