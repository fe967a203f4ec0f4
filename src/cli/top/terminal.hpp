// The screen and the keys of `feroce top`, by ncurses. The library is loaded only where it is used:
// it is no part of a start of `feroce run`.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace feroce::cli {

enum class Style : std::uint8_t { Plain, Bold, Reverse, Dim };

// A key that is no letter, or a letter as its number.
enum Key : int {
    kNoKey = 0,
    kUp = 256,
    kDown,
    kPageUp,
    kPageDown,
    kHome,
    kResized,
    kEnter,
    kErase,
    kGone  // The terminal is: no key will come.
};

class Terminal {
public:
    // Null if there is none; `why` says so in a sentence.
    static std::unique_ptr<Terminal> open(std::string& why);
    ~Terminal();  // The terminal is as it was before.
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    std::size_t rows() const;
    std::size_t columns() const;
    void clear();
    // Cut off at the edge; what is not ASCII is shown as a question mark.
    void put(std::size_t row, const std::string& text, Style style = Style::Plain);
    void show();
    int wait_for_key(std::chrono::milliseconds most);  // Key, or a letter; kNoKey: none came.

private:
    struct Library;
    explicit Terminal(const Library& library) : library_(library) {}

    const Library& library_;
    void* screen_ = nullptr;
};

}  // namespace feroce::cli
