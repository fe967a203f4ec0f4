// See client_book.hpp.
#include "block/client_book.hpp"

#include <algorithm>
#include <span>
#include <sstream>
#include <utility>

#include "block/durable_file.hpp"

namespace feroce::block {

namespace {

constexpr const char* kBookTitle = "feroce-client-book 1";

}  // namespace

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
    const auto is_away = [](const Client& one) { return one.sessions == 0; };
    const auto has_nothing = [](const Client& one) {
        return one.sessions == 0 && one.open.empty();
    };
    auto away = std::ranges::find_if(clients_, has_nothing);
    if (away == clients_.end()) away = std::ranges::find_if(clients_, is_away);
    if (away == clients_.end()) return;
    version_ += away->plain;
    clients_.erase(away);
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

void ClientBook::opened(const ClientId& client) {
    Client* const known = find(client);
    if (known == nullptr || known->plain) return;
    known->plain = true;
    ++version_;
}

void ClientBook::granted(const ClientId& client, Disk disk) {
    Client* const known = find(client);
    if (known == nullptr) return;
    // A client whose paths were cut opens again what it has: nothing to save.
    if (known->plain && std::ranges::count(known->open, disk) > 0) return;
    std::erase_if(known->open, [&](const Disk& one) { return one.asked == disk.asked; });
    known->open.push_back(std::move(disk));
    known->plain = true;
    ++version_;
}

void ClientBook::closed(const ClientId& client, std::uint32_t device) {
    Client* const known = find(client);
    if (known == nullptr) return;
    const auto is_it = [&](const Disk& one) { return one.device == device; };
    if (std::erase_if(known->open, is_it) > 0 || !known->whole) ++version_;
    if (known->whole) return;
    auto& closed = known->closed;
    std::erase(closed, device);
    if (closed.size() >= kMaxClosed) closed.erase(closed.begin());
    closed.push_back(device);
}

std::string ClientBook::text() const {
    std::ostringstream out;
    out << kBookTitle << '\n';
    for (const Client& client : clients_) {
        if (!client.plain) continue;
        out << "client " << to_hex(client.id) << ' ' << client.whole << '\n';
        for (const Disk& disk : client.open)
            out << "disk " << disk.device << ' ' << disk.store << ' ' << disk.generation << ' '
                << to_hex(std::as_bytes(std::span(disk.asked))) << '\n';
        for (const std::uint32_t device : client.closed) out << "closed " << device << '\n';
    }
    out << "end\n";
    return out.str();
}

bool ClientBook::parse(std::istream& in) {
    std::string line, key, text;
    std::list<Client> all;
    if (!std::getline(in, line) || line != kBookTitle) return false;
    while (in >> key && key != "end") {
        bool fine = false;
        if (key == "client") {
            Client& client = all.emplace_back();
            client.plain = true;
            fine = in >> text >> client.whole && from_hex(text, client.id);
        } else if (key == "disk" && !all.empty()) {
            Disk& disk = all.back().open.emplace_back();
            fine =
                in >> disk.device >> disk.store >> disk.generation >> text && text.size() % 2 == 0;
            disk.asked.resize(text.size() / 2);
            fine = fine && from_hex(text, std::as_writable_bytes(std::span(disk.asked)));
        } else if (key == "closed" && !all.empty()) {
            fine = static_cast<bool>(in >> all.back().closed.emplace_back());
        }
        if (!fine) return false;
    }
    if (key != "end") return false;
    clients_ = std::move(all);
    return true;
}

}  // namespace feroce::block
