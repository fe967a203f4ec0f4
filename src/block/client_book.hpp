// ClientBook: what clients that know no generations, as the kernel's, have open for writing. After
// a reconnect such a client opens its disks by the same OPEN as for the first time. The book tells
// the two apart, and keeps for the client what ours would send: the store and the generation that
// it was granted (docs/adr/0018).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "feroce/block/types.hpp"

namespace feroce::block {

class ClientBook {
public:
    static constexpr std::size_t kMaxClients = 1024;
    static constexpr std::size_t kMaxClosed = 64;  // Of a client.

    struct Disk {
        std::string asked;  // The name that the client gave.
        std::uint32_t device = 0;
        std::uint64_t store = 0;
        std::uint64_t generation = 0;
        bool operator==(const Disk&) const = default;
    };
    // What a client that opens a disk has to do with that name.
    struct Past {
        std::optional<Disk> open = {};  // It was granted this, and has not closed it.
        // Nothing says what it has open: it was a client before this server was one.
        bool unknown = false;
    };

    // A session of the client begins here. `returns`: it has been connected before.
    void came(const ClientId& client, bool returns);
    void left(const ClientId& client);
    // `devices`: the numbers that the name may have had.
    Past past(const ClientId& client, const std::string& asked,
              const std::array<std::uint32_t, 2>& devices) const;
    // It has opened a disk, and sent no generation; only such clients are in the text.
    void opened(const ClientId& client);
    void granted(const ClientId& client, Disk disk);
    void closed(const ClientId& client, std::uint32_t device);

    std::size_t size() const { return clients_.size(); }
    std::uint64_t version() const { return version_; }  // Goes up when the text changes.
    std::string text() const;
    // False, and the book is as it was: it is no text of a book.
    bool parse(std::istream& in);

private:
    struct Client {
        ClientId id{};
        // Known since its first connection: it has nothing open but what is here.
        bool whole = false;
        std::size_t sessions = 0;  // That it has here now.
        bool plain = false;        // It knows no generations.
        std::vector<Disk> open = {};
        std::vector<std::uint32_t> closed = {};  // Of a client that is not whole; newest last.
    };

    Client* find(const ClientId& client);
    const Client* find(const ClientId& client) const;
    // Those that are not here are dropped, the oldest first: they are unknown if they come back.
    void limit();

    std::list<Client> clients_;  // The one that came last is the last.
    std::uint64_t version_ = 0;
};

}  // namespace feroce::block
