#include "sim/abi_world.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/assert.hpp"
#include "sim/machine_host.hpp"

namespace feroce::sim {
namespace {

AbiNode* current = nullptr;

// Makes a node the one whose process object the C ABI uses.
class Scope {
public:
    explicit Scope(AbiNode& node)
        : node_(std::exchange(current, &node)), process_(process::Process::current()) {
        process::Process::set_current(&node.instance());
    }
    ~Scope() {
        process::Process::set_current(process_);
        current = node_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

private:
    AbiNode* node_;
    process::Process* process_;
};

// Thrown through a program whose node goes away, so that what it owns is given back.
struct Cancelled {};

void leave_if_cancelled() {
    // A destructor that waits while its program is unwound is let off.
    if (here().machine().cancelled() && std::uncaught_exceptions() == 0) throw Cancelled{};
}

}  // namespace

AbiNode& here() {
    ASSERT(current != nullptr);  // Only programs, and AbiNode::call, are somewhere.
    return *current;
}

void pause() {
    wait_for_news(here().machine().config().poll_interval);
}

void wait_for_news(Duration at_most) {
    Machine& machine = here().machine();
    machine.wait_for_news(machine.now() + at_most);
    leave_if_cancelled();
}

void sleep_for(Duration time) {
    Machine& machine = here().machine();
    machine.sleep_until(machine.now() + time);
    leave_if_cancelled();
}

AbiNode::AbiNode(Machine& machine, const verbs::Instance::Wishes& wishes)
    : machine_(machine),
      instance_(new verbs::Instance(std::make_unique<MachineHost>(machine), wishes)) {
    machine_.set_around([this](const std::function<void()>& run) { call(run); });
}

AbiNode::~AbiNode() {
    end_programs();
    const Scope scope(*this);
    delete instance_;
}

void AbiNode::end_programs() {
    const Scope scope(*this);
    machine_.cancel_programs();
}

void AbiNode::call(const std::function<void()>& body) {
    const Scope scope(*this);
    body();
}

void AbiNode::start(std::string name, std::function<void()> program) {
    const auto body = [program = std::move(program)] {
        try {
            leave_if_cancelled();
            program();
        } catch (const Cancelled&) {
        }
    };
    programs_.push_back({std::move(name), machine_.spawn(Machine::Kind::Program, body)});
}

bool AbiNode::idle() {
    std::erase_if(programs_, [](const Program& p) { return Machine::ended(*p.strand); });
    return crashed_ || programs_.empty();
}

void AbiNode::crash() {
    crashed_ = true;
    machine_.pause();
}

std::string AbiNode::leaks() {
    std::string out;
    const auto tell = [&](const char* what, std::size_t count) {
        if (count > 0) out += " " + std::to_string(count) + " " + what + ",";
    };
    process::CmServer* cm = instance_->cm_server(false);
    if (cm != nullptr) {
        const process::CmServer::Census left = cm->census();
        tell("rdma_cm ids", left.ids);
        tell("listeners", left.listeners);
        tell("connections", left.connections);
        tell("timer of the connection manager", left.timer ? 1 : 0);
    }
    for (const verbs::Context* context : instance_->contexts)
        tell("objects in a context", context->objects - (cm != nullptr ? 1 : 0));
    if (instance_->contexts.size() > (cm != nullptr ? 1 : 0))
        tell("contexts", instance_->contexts.size());
    if (cm == nullptr && instance_->contexts.empty()) return out;  // No engine runs.
    std::size_t queue_pairs = 0, timers = 0;
    for (std::size_t i = 0; i < instance_->shard_count(); ++i)
        instance_->shard(i).inspect({}, [&](device::Engine& engine) {
            queue_pairs += engine.qps().size();
            timers += engine.next_wakeup() != kNever ? 1 : 0;
        });
    tell("queue pairs", queue_pairs - (cm != nullptr ? 1 : 0));  // The manager's own is no leak.
    tell("timers of engines", timers);
    return out;
}

AbiWorld::AbiWorld(std::uint64_t seed, const Options& options) : world_(seed) {
    world_.use_ipv6(options.ipv6);
    ASSERT(process::waiter.exchange(this) == nullptr);
    for (std::size_t i = 0; i < options.nodes; ++i) {
        Machine& machine = world_.add_machine(options.machine, options.link, options.link);
        for (std::size_t rail = 1; rail < options.rails; ++rail)
            world_.add_rail(i, options.link, options.link);
        nodes_.push_back(std::make_unique<AbiNode>(
            machine, verbs::Instance::Wishes{.shards = options.shards,
                                             .keepalive = options.keepalive,
                                             .plays_foreign = options.foreign}));
    }
}

AbiWorld::~AbiWorld() {
    nodes_.clear();
    process::waiter.store(nullptr);
}

std::string AbiWorld::run_all(Duration limit) {
    const auto idle = [](const auto& node) { return node->idle(); };
    world_.scheduler().run_until(now() + limit,
                                 [&] { return std::all_of(nodes_.begin(), nodes_.end(), idle); });
    std::string out;
    for (const auto& node : nodes_)
        if (!node->idle())
            for (const AbiNode::Program& program : node->programs_) out += " " + program.name;
    return out;
}

void AbiWorld::on_event() {
    here().machine().make_news();
}

void AbiWorld::wait_for_event() {
    here().machine().wait_for_news(kNever);
    leave_if_cancelled();
}

void AbiWorld::wait_a_while() {
    if (Fiber::current() != nullptr) pause();
}

}  // namespace feroce::sim
