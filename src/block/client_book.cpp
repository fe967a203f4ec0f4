// See client_book.hpp.
#include "block/client_book.hpp"

#include <algorithm>
#include <utility>

namespace feroce::block {

ClientBook::Client* ClientBook::find(const ClientId& client) {
    const auto found = std::find_if(clients_.begin(), clients_.end(),
                                    [&](const Client& one) { return one.id == client; });
    return found != clients_.end() ? &*found : nullptr;
}

const ClientBook::Client* ClientBook::find(const ClientId& client) const {
    return const_cast<ClientBook*>(this)->find(client);
}

void ClientBook::came(const ClientId& client, bool returns) {
    if (client == ClientId{}) return;
    const auto known = std::find_if(clients_.begin(), clients_.end(),
                                    [&](const Client& one) { return one.id == client; });
    if (known == clients_.end())
        clients_.push_back({.id = client, .whole = !returns});
    else
        clients_.splice(clients_.end(), clients_, known);
    ++clients_.back().sessions;
    limit();
}

void ClientBook::left(const ClientId& client) {
    Client* const known = find(client);
    if (known != nullptr && known->sessions > 0) --known->sessions;
}

void ClientBook::limit() {
    if (clients_.size() <= kMaxClients) return;
    const auto away = std::find_if(clients_.begin(), clients_.end(),
                                   [](const Client& one) { return one.sessions == 0; });
    if (away != clients_.end()) clients_.erase(away);
}

ClientBook::Past ClientBook::past(const ClientId& client, const std::string& asked,
                                  const std::array<std::uint32_t, 2>& devices) const {
    if (client == ClientId{}) return {};
    const Client* const known = find(client);
    if (known == nullptr) return {.unknown = true};
    for (const Disk& disk : known->open)
        if (disk.asked == asked) return {.open = disk};
    const auto& closed = known->closed;
    const bool has_closed = std::find_first_of(closed.begin(), closed.end(), devices.begin(),
                                               devices.end()) != closed.end();
    return {.unknown = !known->whole && !has_closed};
}

void ClientBook::granted(const ClientId& client, Disk disk) {
    Client* const known = find(client);
    if (known == nullptr) return;
    std::erase_if(known->open, [&](const Disk& one) { return one.asked == disk.asked; });
    known->open.push_back(std::move(disk));
}

void ClientBook::closed(const ClientId& client, std::uint32_t device) {
    Client* const known = find(client);
    if (known == nullptr) return;
    std::erase_if(known->open, [&](const Disk& one) { return one.device == device; });
    if (known->whole) return;
    auto& closed = known->closed;
    std::erase(closed, device);
    if (closed.size() >= kMaxClosed) closed.erase(closed.begin());
    closed.push_back(device);
}

}  // namespace feroce::block
