#include "sim/machine_host.hpp"

#include <algorithm>
#include <cerrno>
#include <map>

namespace feroce::sim {
namespace {

constexpr int kFreePortTries = 256;

class MachineRendezvous final : public host::Rendezvous {
public:
    MachineRendezvous(Machine& machine, RandomSource& random) : random_(random), bell_(machine) {}

    Result<host::PortLease> lease(wire::PortSpace space, const Gid& address,
                                  std::uint16_t port) override {
        const int tries = port == 0 ? kFreePortTries : 1;
        for (int i = 0; i < tries; ++i) {
            const std::uint16_t wanted = port != 0 ? port : host::free_port(random_.next());
            const Key key{wire::make_service_id(space, wanted).raw, address};
            if (std::any_of(held_.begin(), held_.end(),
                            [&](const auto& held) { return held.second == key; }))
                continue;
            held_[++last_id_] = key;
            return host::PortLease{last_id_, wanted};
        }
        return Error{EADDRINUSE, "the rdma_cm port is taken on this address"};
    }
    void end(const host::PortLease& lease) override { held_.erase(lease.id); }
    // There is no other process to hand anything over.
    bool offer(const host::CmDatagram&) override { return false; }
    Instant retry(Instant) override { return kNever; }
    void drain(std::vector<host::CmDatagram>&) override {}
    bool wait(Instant until) override {
        bell_.wait(until);
        return false;
    }
    void wake() override { bell_.ring(); }
    void abandon() override {}

private:
    using Key = std::pair<std::uint64_t, Gid>;

    RandomSource& random_;
    Machine::Bell bell_;
    std::map<std::uint32_t, Key> held_;
    std::uint32_t last_id_ = 0;
};

class FiberTask final : public host::Task {
public:
    FiberTask(Machine& machine, std::shared_ptr<Machine::Strand> strand)
        : machine_(machine), strand_(std::move(strand)) {}
    ~FiberTask() override { machine_.join(*strand_); }

private:
    Machine& machine_;
    std::shared_ptr<Machine::Strand> strand_;
};

}  // namespace

MachinePort::MachinePort(Machine& machine)
    : machine_(machine),
      way_(machine.parts(), machine.address(), machine.id()),
      slot_(machine.free_slot()),
      bell_(machine) {
    machine_.attach(*this);
}

MachinePort::~MachinePort() {
    machine_.detach(*this);
}

bool MachinePort::poll(Instant now, device::Engine& engine) {
    if (socket_.empty()) return false;
    std::deque<FramePtr> arrived;
    arrived.swap(socket_);
    for (const FramePtr& frame : arrived)
        engine.receive(now, {.bytes = frame->bytes,
                             .source = frame->address.source,
                             .destination = frame->address.destination,
                             .source_port = frame->address.source_port,
                             .id_hint = frame->ipv4_id,
                             .traffic_class = frame->traffic_class,
                             .hop_limit = frame->hop_limit});
    machine_.make_news();
    return true;
}

void MachinePort::arm() {
    armed_ = true;
    if (!socket_.empty()) bell_.ring();
}

bool MachinePort::wait(Instant until) {
    bell_.wait(until);
    if (!armed_ || socket_.empty()) return false;
    armed_ = false;
    return true;
}

void MachinePort::deliver(const FramePtr& frame) {
    const bool fits = socket_.size() < machine_.config().socket_frames;
    machine_.parts().trace.frame(machine_.now(), fits ? TraceEvent::Delivered : TraceEvent::Dropped,
                                 machine_.id(), *frame);
    if (!fits) return;
    socket_.push_back(frame);
    machine_.make_news();
    if (armed_) bell_.ring(machine_.config().wake_delay);
}

void MachinePort::on_interfaces_changed() {
    changed_ = true;
    bell_.ring();
}

std::vector<host::Interface> MachineHost::interfaces() {
    std::vector<host::Interface> all;
    const auto add = [&](const std::vector<Gid>& addresses) {
        host::Interface made;
        const auto number = static_cast<std::uint8_t>(all.size());
        made.name = "eth" + std::to_string(number);
        made.index = number + 1u;
        made.mtu = machine_.config().mtu;
        made.up = true;
        made.mac = {2, 0, 0, 0, number, static_cast<std::uint8_t>(machine_.id() + 1)};
        made.gids = addresses;
        all.push_back(made);
    };
    if (!machine_.addresses().empty()) add(machine_.addresses());
    for (const Gid& address : machine_.rail_addresses()) add({address});
    return all;
}

Result<std::unique_ptr<host::HostPort>> MachineHost::open_port() {
    return std::unique_ptr<host::HostPort>(std::make_unique<MachinePort>(machine_));
}

Result<std::unique_ptr<host::Rendezvous>> MachineHost::open_rendezvous(SlotNumber, int) {
    return std::unique_ptr<host::Rendezvous>(
        std::make_unique<MachineRendezvous>(machine_, random_));
}

Result<Gid> MachineHost::source_for(const Gid& destination, std::uint32_t) {
    if (machine_.addresses().empty()) return Error{ENETUNREACH, "the machine has no address"};
    return machine_.source_for(destination);
}

Result<std::unique_ptr<host::Task>> MachineHost::spawn(std::function<void()> body) {
    return std::unique_ptr<host::Task>(std::make_unique<FiberTask>(
        machine_, machine_.spawn(Machine::Kind::Service, std::move(body))));
}

}  // namespace feroce::sim
