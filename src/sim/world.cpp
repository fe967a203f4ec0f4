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
    const Link::Parts parts{scheduler_, trace_, random_};
    const Gid address = next_address();
    Place place;
    place.up = std::make_unique<Link>(parts, up, 1000 + id, switch_);
    place.node = std::make_unique<Node>(
        Node::Parts{scheduler_, trace_, {scheduler_, trace_, *place.up, switch_}}, config, id,
        address, random_.next());
    place.down = std::make_unique<Link>(parts, down, 2000 + id, *place.node);
    switch_.attach(address, *place.down);
    places_.push_back(std::move(place));
    return *places_.back().node;
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
        place.node->resume();
    }
}

}  // namespace feroce::sim
