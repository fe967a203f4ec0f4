// Backlog: letters whose mailbox was full, because its owner is stopped or slow. Pure: when they
// are tried again, and for how long. A full mailbox is asked for once a try, whatever waits for it,
// and less and less often; what waits too long is dropped, because its sender repeats itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "base/time.hpp"
#include "port/mailbox.hpp"

namespace feroce::port {

class Backlog {
public:
    // False if it already has as much as it takes, for this mailbox or in all.
    bool add(const std::string& mailbox, std::uint32_t user, const Letter& letter, Instant now);
    bool empty() const { return boxes_.empty(); }
    bool waits_for(const std::string& mailbox) const { return boxes_.contains(mailbox); }

    // Tries what is due, within the bounds of one turn. When to call again: kNever if nothing
    // waits.
    using Post =
        std::function<Posted(const std::string& mailbox, std::uint32_t user, const Letter&)>;
    Instant retry(Instant now, const Post& post);

private:
    static constexpr std::size_t kLettersMax = 1024;
    static constexpr std::size_t kLettersPerBox = 128;
    static constexpr int kTriesPerTurn = 64;
    static constexpr Duration kFirstPause = std::chrono::milliseconds(1);
    static constexpr Duration kLongestPause = std::chrono::milliseconds(128);
    static constexpr Duration kPatience = std::chrono::seconds(2);

    struct Box {
        std::uint32_t user = 0;
        std::deque<Letter> letters;  // Never empty.
        Instant next_try{};
        Duration pause = kFirstPause;
        Instant give_up{};  // If nothing is taken until then.
    };
    // Posts the box's letters in their order until it is full again; true if none is left.
    bool send_from(const std::string& mailbox, Box& box, Instant now, int& tries, const Post& post);

    std::map<std::string, Box> boxes_;
    std::size_t letters_ = 0;  // In all boxes.
};

}  // namespace feroce::port
