// OrderTrial: does a program go on as soon as the last bytes of a WRITE are there? Lint cannot see
// what a program reads. So it tries, by chance, one of two things with the bytes of a WRITE before
// it places all of them: to place only the last ones and wait, or to wait with none of them. A
// program that posts again and again within waits of the first kind, and never within one of the
// second, has looked at the last bytes and trusts that the others were there before.
#pragma once

#include <cstdint>

namespace feroce::lint {

class OrderTrial {
public:
    enum class Hold : std::uint8_t { Nothing, AllButLast, All };

    // So many reactions to last bytes alone, and none without: by chance one time in 65,536.
    static constexpr std::uint32_t kConvincing = 16;
    static constexpr std::uint32_t kTrialsMax = 512;

    // What to do with the next WRITE; `chance` is a random number.
    Hold next(std::uint64_t chance);
    // The program posted while `hold` lasted. True if that convinces, once.
    bool reacted(Hold hold);
    bool over() const { return convinced_ || trials_ >= kTrialsMax; }
    std::uint32_t trials() const { return trials_; }

private:
    std::uint32_t trials_ = 0;
    std::uint32_t to_last_bytes_ = 0;  // Since the program last posted without any.
    bool convinced_ = false;
};

}  // namespace feroce::lint
