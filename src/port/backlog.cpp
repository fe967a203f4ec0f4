#include "port/backlog.hpp"

#include <algorithm>

namespace feroce::port {

bool Backlog::add(const std::string& mailbox, std::uint32_t user, const Letter& letter,
                  Instant now) {
    if (letters_ >= kLettersMax) return false;
    const auto [found, fresh] = boxes_.try_emplace(mailbox);
    Box& box = found->second;
    if (fresh) {
        box.user = user;
        box.next_try = now + kFirstPause;
        box.give_up = now + kPatience;
    }
    if (box.letters.size() >= kLettersPerBox) return false;
    box.letters.push_back(letter);
    ++letters_;
    return true;
}

bool Backlog::send_from(const std::string& mailbox, Box& box, Instant now, int& tries,
                        const Post& post) {
    while (!box.letters.empty() && tries-- > 0) {
        const Posted posted = post(mailbox, box.user, box.letters.front());
        if (posted == Posted::Full) {
            box.next_try = now + box.pause;
            box.pause = std::min(2 * box.pause, kLongestPause);
            return now >= box.give_up;
        }
        if (posted == Posted::Nobody) return true;
        box.letters.pop_front();
        --letters_;
        box.pause = kFirstPause;
        box.give_up = now + kPatience;
    }
    return box.letters.empty();
}

Instant Backlog::retry(Instant now, const Post& post) {
    int tries = kTriesPerTurn;
    Instant next = kNever;
    for (auto at = boxes_.begin(); at != boxes_.end();) {
        Box& box = at->second;
        if (tries > 0 && box.next_try <= now && send_from(at->first, box, now, tries, post)) {
            letters_ -= box.letters.size();
            at = boxes_.erase(at);
            continue;
        }
        next = std::min(next, box.next_try);
        ++at;
    }
    // What is due but did not get its turn.
    return next == kNever ? kNever : std::max(next, now + kFirstPause);
}

}  // namespace feroce::port
