// Mailbox: an abstract unix name at which letters arrive, and how they are sent there. A letter is
// one connection: the sender connects, looks who listens, sends, and goes.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/time.hpp"
#include "host/rendezvous.hpp"
#include "port/fd.hpp"
#include "port/neighbours.hpp"

namespace feroce::port {

// A message on its way between processes of this machine, as it is in memory.
struct Letter {
    Tokens tokens;  // By which a guest knows processes of the port's owner.
    host::CmDatagram message;
};

class Mailbox {
public:
    static constexpr int kLettersMax = 128;  // That have not been taken out yet.

    // EADDRINUSE if the name is taken.
    static Result<Mailbox> open(std::string name);

    int fd() const { return fd_.get(); }  // Readable while there are letters.
    const std::string& name() const { return name_; }

    struct Arrival {
        Fd connection;
        ucred sender;
    };
    std::optional<Arrival> next() const;  // None: the box is empty.
    // What the arrival brings; waits for it until then if it is not there yet.
    static std::optional<Letter> read(const Arrival& arrival, Instant until);

private:
    Mailbox(Fd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

    Fd fd_;
    std::string name_;
};

enum class Posted : std::uint8_t { Taken, Full, Nobody };
// Nobody: there is no such box, or `trusts` does not like whose it is.
Posted post(const std::string& mailbox, const Letter& letter,
            const std::function<bool(const ucred&)>& trusts);

}  // namespace feroce::port
