#include "sim/world.hpp"

namespace feroce::sim {

World::World(std::uint64_t seed) : random_(seed) {}

Gid World::next_address() const {
    const auto number = static_cast<std::uint32_t>(places_.size() + 1);
    if (!ipv6_) return Gid::from_v4(0x0a00'0000 + number);  // 10.0.0.n
    Gid gid;                                                // fd00::n
    gid.raw[0] = 0xfd;
    gid.raw[15] = static_cast<std::uint8_t>(number);
    return gid;
}

Node& World::add_node(const NodeConfig& config, const LinkConfig& up, const LinkConfig& down) {
    const auto id = static_cast<std::uint32_t>(places_.size());
    const Gid address = next_address();
    Place& place = add_place(up);
    place.node = std::make_unique<Node>(
        Node::Parts{scheduler_, trace_, {scheduler_, trace_, *place.up, switch_}}, config, id,
        address, random_.next());
    plug_in(place, address, *place.node, down);
    return *place.node;
}

Machine& World::add_machine(const MachineConfig& config, const LinkConfig& up,
                            const LinkConfig& down) {
    const auto id = static_cast<std::uint32_t>(places_.size());
    const Gid address = next_address();
    Place& place = add_place(up);
    place.machine =
        std::make_unique<Machine>(Machine::Parts{scheduler_, trace_, *place.up, switch_}, config,
                                  id, address, random_.next());
    plug_in(place, address, *place.machine, down);
    return *place.machine;
}

World::Place& World::add_place(const LinkConfig& up) {
    const auto id = static_cast<std::uint32_t>(places_.size());
    Place& place = places_.emplace_back();
    place.up =
        std::make_unique<Link>(Link::Parts{scheduler_, trace_, random_}, up, 1000 + id, switch_);
    return place;
}

void World::plug_in(Place& place, const Gid& address, FrameSink& who, const LinkConfig& down) {
    const auto id = static_cast<std::uint32_t>(places_.size() - 1);
    place.down =
        std::make_unique<Link>(Link::Parts{scheduler_, trace_, random_}, down, 2000 + id, who);
    switch_.attach(address, *place.down);
}

void World::set_faults(const Faults& faults) {
    for (Place& place : places_) place.up->set_faults(faults);
}

void World::heal() {
    for (Place& place : places_) {
        place.up->set_faults({});
        place.up->set_blocked(false);
        place.down->set_faults({});
        place.down->set_blocked(false);
        if (place.node) place.node->resume();
        if (place.machine) place.machine->resume();
    }
}

}  // namespace feroce::sim
