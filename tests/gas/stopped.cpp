// The last node is stopped until the others have found it lost, and goes on then: its first
// operation must fail and say why, its barrier too, and nothing that it writes may land.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

#include "counted.hpp"
#include "feroce/gas/node.hpp"

using namespace feroce::gas;
using namespace std::chrono_literals;

namespace {

using Word = plain<std::uint64_t>;

// The others stay until it has ended, so that it is told by them and does not find them gone.
bool await_end(pid_t process) {
    for (int i = 0; i < 6000; ++i) {
        if (kill(process, 0) != 0) return true;
        usleep(10'000);
    }
    return false;
}

// Of the node that was stopped.
int go_on(Node& node, ptr<Word> word) {
    const auto written = node.write(word, 7);
    if (written || written.error().code != ESTALE) return 1;
    const auto met = node.barrier();
    if (met || met.error().code != ESTALE) return 2;
    std::printf("%s\n", written.error().why.c_str());
    return 0;
}

// Of the others.
int stay(Node& node, Counted& counted, pid_t stopped, ptr<Word> word) {
    const auto met = node.barrier();
    if (met) return 3;
    std::printf("%s\n", met.error().why.c_str());
    counted.add();
    if (node.id() == NodeId{0}) {  // It goes on when all others have found it lost.
        if (!counted.reaches(2 * node.size() - 1u)) return 4;
        kill(stopped, SIGCONT);
    }
    if (!await_end(stopped)) return 5;
    if (node.read(word).value() == 0) std::printf("nothing of it has landed\n");
    return node.leave() ? 0 : 7;  // Node 0 has the word: it ends when all have read it.
}

}  // namespace

int main() {
    NodeOptions options;
    options.placement = placement_from_environment().value();
    options.silence = 500ms;
    Node node = Node::join(options).value();
    const int last = node.size() - 1;
    Counted counted(node, last);
    const auto process = node.share<Word>("process").value();
    const auto word = node.share<Word>("word").value();
    const bool stops = static_cast<int>(node.id()) == last;
    if (stops) node.write(process, static_cast<std::uint64_t>(getpid())).value();
    node.barrier().value();
    const auto stopped = static_cast<pid_t>(node.read(process).value());
    counted.add();
    if (!stops) return stay(node, counted, stopped, word);
    if (!counted.reaches(node.size())) return 6;
    std::raise(SIGSTOP);
    return go_on(node, word);
}
