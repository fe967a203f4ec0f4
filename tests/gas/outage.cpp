// A node of a cluster whose network fails: outage SILENCE_IN_MILLISECONDS, started and read by
// outage_test.py. The nodes count at both ends of the network until they are told to stop, which
// closes their standard input. What was counted must be there, once.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "feroce/gas/node.hpp"

using namespace feroce::gas;

namespace {

using Count = nic<std::uint64_t>;

bool told_to_stop() {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    return poll(&input, 1, 0) != 0;
}

struct Counts {
    std::array<ptr<Count>, 2> ends;  // At node 0 and at the last one.
    ptr<Count> late;                 // What is counted after a loss.
};

Counts share_counts(Node& node) {
    const NodeId last{static_cast<std::uint16_t>(node.size() - 1)};
    if (node.id() == NodeId{0}) {
        node.publish("first", node.allocate(Count()).value()).value();
        node.publish("last", node.allocate_on(last, Count()).value()).value();
        node.publish("late", node.allocate(Count()).value()).value();
    }
    const Counts out{{node.find<Count>("first").value(), node.find<Count>("last").value()},
                     node.find<Count>("late").value()};
    node.barrier().value();
    return out;
}

void say(const char* what, const std::string& why) {
    std::printf("%s %s\n", what, why.c_str());
    std::fflush(stdout);
}

// Nobody was lost: all that was counted is there.
int end_together(Node& node, const Counts& counts, std::uint64_t counted) {
    const auto total = node.share<Count>("total").value();
    node.fetch_add(total, counted).value();
    node.barrier().value();
    const auto sum = node.read(total).value();
    for (const auto& end : counts.ends)
        if (node.read(end).value() != sum) return 1;
    say("counted", std::to_string(sum));
    node.leave().value();
    return 0;
}

// A node was lost. The last one is, for the others; it tries to count when its network is back.
int end_apart(Node& node, const Counts& counts, const Error& why) {
    say("lost", why.why);
    const bool alone = static_cast<int>(node.id()) + 1 == node.size();
    if (!alone) {
        static_cast<void>(node.barrier());  // Tells of it, if it was not told before.
        node.barrier().value();
    }
    say("meets", "");
    while (!told_to_stop()) usleep(1000);
    if (alone) return node.fetch_add(counts.late, 1) ? 2 : 0;
    if (node.read(counts.late).value() != 0) return 3;
    say("fenced", "");
    return 0;
}

}  // namespace

int main(int /*count*/, char** arguments) {
    NodeOptions options;
    options.placement = placement_from_environment().value();
    options.silence = std::chrono::milliseconds(std::atoi(arguments[1]));
    Node node = Node::join(options).value();
    const Counts counts = share_counts(node);
    say("ready", "");
    for (std::uint64_t counted = 0;; ++counted) {
        if (told_to_stop()) return end_together(node, counts, counted);
        for (const auto& end : counts.ends)
            if (const auto added = node.fetch_add(end, 1); !added)
                return end_apart(node, counts, added.error());
    }
}
