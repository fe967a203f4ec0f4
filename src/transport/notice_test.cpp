#include "transport/notice.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace feroce::transport {
namespace {

Notice of(NoticeKind kind, std::uint32_t qpn, std::uint32_t psn, std::uint32_t expected) {
    Notice out;
    out.kind = kind;
    out.qpn = Qpn{qpn};
    out.psn = Psn(psn);
    out.expected = Psn(expected);
    return out;
}

std::uint32_t count_of(const NoticeLog& log, NoticeKind kind) {
    std::uint32_t out = 0;
    for (const Notice& notice : log.all()) out += notice.kind == kind ? notice.count : 0;
    return out;
}

TEST(NoticeLog, CountsTheSameTroubleAndBeginsAnewWithAnother) {
    NoticeLog log;
    log.note(of(NoticeKind::NoReceive, 5, 100, 100));
    log.note(of(NoticeKind::NoReceive, 5, 100, 100));
    EXPECT_EQ(count_of(log, NoticeKind::NoReceive), 2u);
    log.note(of(NoticeKind::NoReceive, 5, 101, 101));
    EXPECT_EQ(count_of(log, NoticeKind::NoReceive), 1u);
}

TEST(NoticeLog, AFlightThatIsRepeatedCountsByItsOldestPacket) {
    NoticeLog log;
    for (int time = 0; time < 3; ++time)
        for (const std::uint32_t psn : {7u, 8u, 9u})
            log.note(of(NoticeKind::AnswersLost, 5, psn, 10));
    EXPECT_EQ(count_of(log, NoticeKind::AnswersLost), 3u);
    for (const Notice& notice : log.all())
        EXPECT_EQ(notice.psn, notice.kind == NoticeKind::None ? Psn(0) : Psn(7));
}

TEST(NoticeLog, ProgressSettlesWhatWasAboutAnEarlierPacket) {
    NoticeLog log;
    log.note(of(NoticeKind::NoReceive, 5, 100, 100));
    log.note(of(NoticeKind::WrongState, 5, 100, 100));
    log.settle(Qpn{5}, Psn(100));
    EXPECT_EQ(count_of(log, NoticeKind::NoReceive), 1u);
    log.settle(Qpn{6}, Psn(101));
    EXPECT_EQ(count_of(log, NoticeKind::NoReceive), 1u);
    log.settle(Qpn{5}, Psn(101));
    EXPECT_EQ(count_of(log, NoticeKind::NoReceive), 0u);
    EXPECT_EQ(count_of(log, NoticeKind::WrongState), 1u);
}

TEST(NoticeLog, APeerThatBeginsElsewhereIsSettledByItsFirstPacket) {
    NoticeLog log;
    for (int time = 0; time < 2; ++time)
        for (const std::uint32_t psn : {7u, 8u}) log.note(of(NoticeKind::FirstPsn, 5, psn, 1000));
    EXPECT_EQ(count_of(log, NoticeKind::FirstPsn), 2u);
    log.settle(Qpn{5}, Psn(1001));
    EXPECT_EQ(count_of(log, NoticeKind::FirstPsn), 0u);
}

TEST(Notice, EveryKindAndSendErrorHasASentenceOfItsOwn) {
    std::set<std::string> sentences;
    constexpr auto kLast = static_cast<int>(NoticeKind::SendRefused);
    for (int kind = 1; kind <= kLast; ++kind) {
        Notice notice = of(static_cast<NoticeKind>(kind), 0x1234, 77, 77);
        notice.error = EINVAL;
        const std::string sentence = describe(notice);
        EXPECT_NE(sentence.find("0x001234"), std::string::npos) << sentence;
        sentences.insert(sentence);
    }
    EXPECT_EQ(sentences.size(), static_cast<std::size_t>(kLast));
    for (const int error :
         {EADDRNOTAVAIL, EMSGSIZE, ENETUNREACH, EHOSTUNREACH, EPERM, ENETDOWN, EMFILE, EIO})
        sentences.insert(describe_send_error(error, Gid::from_v4(1), Gid::from_v4(2)));
    EXPECT_EQ(sentences.size(), static_cast<std::size_t>(kLast) + 8);
}

}  // namespace
}  // namespace feroce::transport
