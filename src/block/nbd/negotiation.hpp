// Negotiation: what an NBD client and we say before the first request. No socket in it: bytes in,
// bytes out, so that tests and fuzzers drive it. Memory is bounded: an option is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "block/nbd/words.hpp"

namespace feroce::block::nbd {

class Negotiation {
public:
    enum class State : std::uint8_t {
        Hears,     // take() goes on with more bytes.
        Asks,      // It needs the disk: describe() or refuse().
        Requests,  // It is over: what follows are requests.
        Over,      // The connection ends when the output is sent.
    };
    // The longest option that is not a mistake: a name of 4096 bytes and a few requests.
    static constexpr std::size_t kOptionMax = 8192;

    Negotiation();  // Greets.

    State state() const { return state_; }
    // How many of the bytes it has used; the rest comes again with more. Stops at Asks.
    std::size_t take(ByteView in);
    void describe(const ExportInfo& disk);
    void refuse();  // There is no disk to be had.
    std::vector<std::byte>& output() { return output_; }
    const std::vector<std::byte>& output() const { return output_; }

private:
    std::size_t step(ByteView in);  // 0: it needs more.
    void hear(std::uint32_t option, ByteView data);
    void answer(std::uint32_t kind, ByteView data = {});
    void answer_asked();
    static bool is_sound(ByteView data);

    State state_ = State::Hears;
    bool greeted_ = false;      // The client's flags have come.
    bool no_zeroes_ = false;    // It wants none behind an answer to ExportName.
    std::uint32_t option_ = 0;  // The one that is answered.
    std::optional<ExportInfo> disk_;
    std::vector<std::byte> output_;
};

}  // namespace feroce::block::nbd
