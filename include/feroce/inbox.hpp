// Inbox: receives posted ahead for one connection, so that its peer may send at any time, and the
// messages that came. Waiting for the next one may be given up without harm to the connection,
// unlike a single receive. Ends before its connection, which it closes if it is still open: the
// device holds its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "feroce/connection.hpp"
#include "feroce/suspension.hpp"

namespace feroce::rdma {

class Inbox {
    class Core;
    struct Slot;

public:
    // A message, in the memory of the inbox, before which it ends; then its receive is posted
    // again.
    class Arrival {
    public:
        Arrival(Arrival&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
        Arrival& operator=(Arrival&& other) noexcept {
            std::swap(slot_, other.slot_);
            return *this;
        }
        ~Arrival();

        std::span<const std::byte> bytes() const;
        std::optional<std::uint32_t> immediate() const;
        // An RDMA WRITE with immediate: bytes() is empty, the data is where the peer put it.
        bool is_write() const;

    private:
        friend class Inbox;
        explicit Arrival(Slot& slot) : slot_(&slot) {}
        Slot* slot_;
    };

    // So many receives of so many bytes each. Made between Connection::resolve or Request::prepare
    // and connecting, no message finds it missing.
    static Result<Inbox> create(Connection& connection, std::uint32_t messages,
                                std::uint32_t bytes);
    Inbox(Inbox&&) noexcept;
    Inbox& operator=(Inbox&&) noexcept;
    ~Inbox();

    class Next;
    // co_await inbox.next().within(1s): ETIMEDOUT and ECANCELED leave everything as it is. Once the
    // connection is closed and all that came is taken, why it closed.
    Next next();

private:
    explicit Inbox(std::unique_ptr<Core> core);

    std::unique_ptr<Core> core_;
};

class [[nodiscard]] Inbox::Next final : public Limited<Inbox::Next> {
public:
    explicit Next(Core& core);
    ~Next();  // A message that it was given and nobody took goes to the next.

    bool start(std::coroutine_handle<> handle, const Limits* outer);
    Result<Arrival> result();

private:
    friend class Core;

    Core& core_;
    Slot* slot_ = nullptr;
};

}  // namespace feroce::rdma
