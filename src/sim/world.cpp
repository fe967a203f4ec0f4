#include "sim/world.hpp"

namespace feroce::sim {

World::World(std::uint64_t seed) : random_(seed) {}

Gid World::address_of(std::size_t index, std::size_t rail) const {
    const auto number = static_cast<std::uint32_t>(index + 1);
    const auto net = static_cast<std::uint32_t>(rail);
    if (!ipv6_) return Gid::from_v4(0x0a00'0000 + (net << 8) + number);  // 10.0.rail.n
    Gid gid;                                                             // fd00:rail::n
    gid.raw[0] = 0xfd;
    gid.raw[3] = static_cast<std::uint8_t>(rail);
    gid.raw[15] = static_cast<std::uint8_t>(number);
    return gid;
}

Node& World::add_node(const NodeConfig& config, const LinkConfig& up, const LinkConfig& down) {
    const auto id = static_cast<std::uint32_t>(places_.size());
    const Gid address = address_of(id, 0);
    Place& place = add_place(up);
    place.node = std::make_unique<Node>(
        Node::Parts{scheduler_, trace_, {scheduler_, trace_, *place.up, switch_}}, config, id,
        address, random_.next());
    plug_in(place, address, *place.node, down);
    switch_.attach(address_of(id, 1), *place.down);
    return *place.node;
}

Machine& World::add_machine(const MachineConfig& config, const LinkConfig& up,
                            const LinkConfig& down) {
    const auto id = static_cast<std::uint32_t>(places_.size());
    const Gid address = address_of(id, 0);
    Place& place = add_place(up);
    place.machine =
        std::make_unique<Machine>(Machine::Parts{scheduler_, trace_, *place.up, switch_}, config,
                                  id, address, random_.next());
    plug_in(place, address, *place.machine, down);
    return *place.machine;
}

void World::add_rail(std::size_t index, const LinkConfig& up, const LinkConfig& down) {
    Place& place = places_[index];
    const std::size_t rail = place.rails.size() + 1;
    const Gid address = address_of(index, rail);
    const auto id = static_cast<std::uint32_t>(index + 100 * rail);
    const Link::Parts parts{scheduler_, trace_, random_};
    place.rails.push_back({std::make_unique<Link>(parts, up, 1000 + id, switch_),
                           std::make_unique<Link>(parts, down, 2000 + id, *place.machine)});
    place.machine->add_rail(address, *place.rails.back().up);
    switch_.attach(address, *place.rails.back().down);
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
    for (Place& place : places_) {
        place.up->set_faults(faults);
        for (Rail& rail : place.rails) rail.up->set_faults(faults);
    }
}

void World::heal() {
    const auto heal_link = [](Link& link) {
        link.set_faults({});
        link.set_blocked(false);
        link.set_held(false);
    };
    for (Place& place : places_) {
        heal_link(*place.up);
        heal_link(*place.down);
        for (Rail& rail : place.rails) {
            heal_link(*rail.up);
            heal_link(*rail.down);
        }
        if (place.node) place.node->resume();
        if (place.machine) place.machine->resume();
    }
}

}  // namespace feroce::sim
