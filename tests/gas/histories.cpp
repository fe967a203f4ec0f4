// Containers on real threads of real processes: what each thread asked and got is written down
// with the machine's clock, and the first node checks that all of it is linearizable.
//
// With an argument (map, tree or set) the last node, which has no memory of its own, is killed in
// the middle of it: its last calls may have taken effect or not, and the others go on.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "feroce/gas/ds/array.hpp"
#include "gas/histories.hpp"

using namespace feroce::gas;
using namespace std::chrono_literals;
namespace test = feroce::test;
using feroce::sim::MapCall;
using feroce::sim::QueueCall;

namespace {

constexpr std::uint16_t kThreads = 2;
constexpr std::uint64_t kMapRounds = 40;
constexpr std::uint64_t kQueueRounds = 7;

std::uint64_t nanoseconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
}

class Program {
public:
    Program(Node& node, bool with_crash) : node_(node), with_crash_(with_crash) {}

    // A barrier of those who live.
    void meet(const std::string& name) {
        if (!with_crash_) return node_.barrier().value();
        const auto count = come(name);
        // A node that has gone on and left had seen all of them come.
        for (auto seen = node_.read(count); seen && *seen + 1 < node_.size();)
            seen = node_.read(count);
    }
    // Nobody leaves before the doomed one is about to die: else it would miss them, not they it.
    void wait_for_death(const std::string& name) {
        if (!with_crash_) return;
        const auto dying = node_.share<nic<std::uint64_t>>(name + " dying").value();
        for (auto seen = node_.read(dying); seen && *seen == 0;) seen = node_.read(dying);
    }
    bool is_doomed() const {
        return with_crash_ && static_cast<int>(node_.id()) + 1 == node_.size();
    }

    // `use` is given a recorder and a thread; `check` all calls, on the first node.
    template <class Call, class Use, class Check>
    void run(const std::string& name, std::uint64_t rounds, Use use, Check check) {
        using Calls = Array<Call>;
        if (node_.id() == NodeId{0})
            node_.publish(name + " calls", Calls::create(node_, all_threads() * rounds).value())
                .value();
        const auto root = node_.find<typename Calls::Root>(name + " calls").value();
        std::vector<std::thread> others;
        for (std::size_t thread = 1; thread < kThreads; ++thread)
            others.emplace_back([&, thread] { run_thread<Call>(root, thread, rounds, use); });
        run_thread<Call>(root, 0, rounds, use);
        for (std::thread& other : others) other.join();
        wait_for_death(name);
        meet(name + " done");
        if (node_.id() == NodeId{0}) {
            Calls calls = Calls::open(node_, root).value();
            std::vector<Call> all(calls.size());
            node_.loop().run(calls.read(0, std::span<Call>(all))).value();
            std::erase_if(all, [](const Call& call) { return call.start == 0; });
            std::printf("%s: %zu calls, %s\n", name.c_str(), all.size(),
                        check(all) ? "linearizable" : "NOT LINEARIZABLE");
        }
        meet(name + " checked");
    }

    template <class M>
    void run_map(const std::string& name) {
        constexpr M* kOf = nullptr;
        if (node_.id() == NodeId{0}) node_.publish(name, test::create(node_, kOf).value()).value();
        const auto root = node_.find<typename M::Root>(name).value();
        const auto use = [&](auto& recorder, std::size_t thread, std::uint64_t rounds) {
            M map = test::open(node_, root, thread, kOf).value();
            recorder.keys = 20;
            for (std::uint64_t i = 0; i < rounds; ++i) {
                if (thread == 0) die_sometimes(name, i, rounds);
                node_.loop(thread).run(test::use(map, recorder, 1)).value();
            }
        };
        run<MapCall>(name, kMapRounds, use, [](const std::vector<MapCall>& calls) {
            return !feroce::sim::not_linearizable(calls);
        });
    }

    void run_queue() {
        if (node_.id() == NodeId{0})
            node_.publish("queue", test::Fifo::create(node_).value()).value();
        const auto root = node_.find<test::Fifo::Root>("queue").value();
        const auto use = [&](auto& recorder, std::size_t thread, std::uint64_t rounds) {
            test::Fifo queue(node_, root, thread);
            const int count = static_cast<int>(rounds);
            node_.loop(thread).run(test::use_queue(queue, recorder, count, number(thread))).value();
        };
        run<QueueCall>("queue", kQueueRounds, use, [](const std::vector<QueueCall>& calls) {
            return feroce::sim::linearizable(calls);
        });
    }

private:
    std::uint64_t all_threads() const { return std::uint64_t{node_.size()} * kThreads; }
    std::uint64_t number(std::size_t thread) const {
        return static_cast<std::uint64_t>(node_.id()) * kThreads + thread;
    }
    // In the middle of whatever the other thread does.
    void die_sometimes(const std::string& name, std::uint64_t done, std::uint64_t rounds) {
        if (!is_doomed() || done != rounds / 2) return;
        come(name + " dying");
        std::raise(SIGKILL);
    }
    ptr<nic<std::uint64_t>> come(const std::string& name) {
        const auto count = node_.share<nic<std::uint64_t>>(name).value();
        node_.fetch_add(count, 1).value();
        return count;
    }

    // Every call is written to shared memory before it begins and after it has ended.
    template <class Call, class Use>
    void run_thread(ptr<typename Array<Call>::Root> root, std::size_t thread, std::uint64_t rounds,
                    Use& use) {
        Array<Call> calls = Array<Call>::open(node_, root, thread).value();
        test::Recorder<Call> recorder;
        recorder.random = feroce::Prng(number(thread) + 1);
        recorder.clock = nanoseconds;
        recorder.on_change = [&](std::size_t index) {
            calls.set(number(thread) * rounds + index, recorder.calls[index]).wait().value();
        };
        use(recorder, thread, rounds);
    }

    Node& node_;
    const bool with_crash_;
};

}  // namespace

int main(int argc, char** argv) {
    NodeOptions options;
    options.placement = placement_from_environment().value();
    options.threads = kThreads;
    options.lease = {.time = 500ms, .grace = 500ms};
    const bool with_crash = argc > 1;
    const bool last = options.placement.rank + 1 == options.placement.size;
    if (with_crash && last) options.memory = 0;
    Node node = Node::join(options).value();
    Program program(node, with_crash);
    const std::string only = argc > 1 ? argv[1] : "";
    if (only.empty() || only == "map") program.run_map<test::Map>("hash map");
    if (only.empty() || only == "tree") program.run_map<test::Tree>("ordered map");
    if (only.empty() || only == "set") program.run_map<test::SetAsMap>("list set");
    if (with_crash) return 0;  // Who is left ends without saying good-bye to the dead.
    program.run_queue();
    node.leave().value();
}
