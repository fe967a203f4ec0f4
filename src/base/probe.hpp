// Probes for tracers (USDT): a place in the code that bpftrace, bcc, perf and SystemTap can find by
// name and stop at, with values that are at hand there. A probe that nobody traces is one `nop`.
//
//     FEROCE_PROBE4(post_send, qpn, opcode, bytes, wr_id);
//
// Values are unsigned integers or enumerations. Give what is in memory or in a register anyway: the
// note says where, so nothing is loaded for it. docs/watching.md lists the probes and their values.
// The form of the note is SystemTap's version 3; see ADR 0032.
#pragma once

#if defined(__aarch64__) || defined(__x86_64__)

// An operand and its size: a constant, memory that can be named, or a register. Given the choice,
// clang copies a value to the stack first; so it has none.
#if defined(__clang__)
#define FEROCE_PROBE_PLACE "nr"
#else
#define FEROCE_PROBE_PLACE "nor"
#endif
#define FEROCE_PROBE_VALUE(i, value) [s##i] "n"(sizeof(value)), [v##i] FEROCE_PROBE_PLACE(value)

#define FEROCE_PROBE_NOTE(name, values, ...)                                    \
    __asm__ __volatile__(                                                       \
        "990: nop\n"                                                            \
        ".pushsection .note.stapsdt,\"?\",\"note\"\n"                           \
        ".balign 4\n"                                                           \
        ".4byte 992f-991f, 994f-993f, 3\n"                                      \
        "991: .asciz \"stapsdt\"\n"                                             \
        "992: .balign 4\n"                                                      \
        "993: .8byte 990b\n"                                                    \
        ".8byte _.stapsdt.base\n"                                               \
        ".8byte 0\n"                                                            \
        ".asciz \"feroce\"\n"                                                   \
        ".asciz \"" #name                                                       \
        "\"\n"                                                                  \
        ".asciz \"" values                                                      \
        "\"\n"                                                                  \
        "994: .balign 4\n"                                                      \
        ".popsection\n"                                                         \
        ".ifndef _.stapsdt.base\n"                                              \
        ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
        ".weak _.stapsdt.base\n"                                                \
        ".hidden _.stapsdt.base\n"                                              \
        "_.stapsdt.base: .space 1\n"                                            \
        ".size _.stapsdt.base, 1\n"                                             \
        ".popsection\n"                                                         \
        ".endif\n" ::__VA_ARGS__)

#define FEROCE_PROBE3(name, a, b, c)                                                            \
    FEROCE_PROBE_NOTE(name, "%c[s1]@%[v1] %c[s2]@%[v2] %c[s3]@%[v3]", FEROCE_PROBE_VALUE(1, a), \
                      FEROCE_PROBE_VALUE(2, b), FEROCE_PROBE_VALUE(3, c))
#define FEROCE_PROBE4(name, a, b, c, d)                                            \
    FEROCE_PROBE_NOTE(name, "%c[s1]@%[v1] %c[s2]@%[v2] %c[s3]@%[v3] %c[s4]@%[v4]", \
                      FEROCE_PROBE_VALUE(1, a), FEROCE_PROBE_VALUE(2, b),          \
                      FEROCE_PROBE_VALUE(3, c), FEROCE_PROBE_VALUE(4, d))
#define FEROCE_PROBE5(name, a, b, c, d, e)                                                      \
    FEROCE_PROBE_NOTE(name, "%c[s1]@%[v1] %c[s2]@%[v2] %c[s3]@%[v3] %c[s4]@%[v4] %c[s5]@%[v5]", \
                      FEROCE_PROBE_VALUE(1, a), FEROCE_PROBE_VALUE(2, b),                       \
                      FEROCE_PROBE_VALUE(3, c), FEROCE_PROBE_VALUE(4, d),                       \
                      FEROCE_PROBE_VALUE(5, e))

#else  // No notes are made for other processors.

#define FEROCE_PROBE3(name, a, b, c) static_cast<void>(0)
#define FEROCE_PROBE4(name, a, b, c, d) static_cast<void>(0)
#define FEROCE_PROBE5(name, a, b, c, d, e) static_cast<void>(0)

#endif
