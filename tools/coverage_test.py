#!/usr/bin/env python3
"""Shows what tools/coverage.py counts, on reports as gcovr writes them."""
import unittest

import coverage


def line(number, count, *branches):
    return {"line_number": number, "count": count, "gcovr/noncode": False,
            "branches": [{"count": taken} for taken in branches]}


def report(*files):
    return {"files": [{"file": path, "lines": list(lines)} for path, *lines in files]}


class Coverage(unittest.TestCase):
    def test_lines_and_branches_of_a_room_are_added_up(self):
        files = coverage.counts_of(report(("src/cm/a.cpp", line(1, 3, 2, 0), line(2, 0)),
                                          ("src/cm/b.hpp", line(7, 1)),
                                          ("src/mem/c.cpp", line(1, 0))))
        self.assertEqual(list(coverage.rows_of(files)),
                         [["cm", "3", "2", "66.7", "2", "1", "50.0"],
                          ["mem", "1", "0", "0.0", "0", "0", "-"]])

    def test_one_copy_of_a_line_that_ran_is_enough(self):
        files = coverage.counts_of(report(("src/cm/a.hpp", line(1, 0, 0, 1)),
                                          ("src/cm/a.hpp", line(1, 5, 4, 0))))
        self.assertEqual(list(coverage.rows_of(files)),
                         [["cm", "1", "1", "100.0", "2", "2", "100.0"]])

    def test_only_the_product_counts(self):
        others = ("src/cm/state_test.cpp", "src/cm/test_net.hpp", "tests/script/a.cpp",
                  "src/transport/machine_fixture.hpp")
        self.assertEqual(coverage.counts_of(report(*((path, line(1, 1)) for path in others))), {})
        comment = {**line(2, 0), "gcovr/noncode": True}
        files = coverage.counts_of(report(("src/cm/a.cpp", line(1, 1), comment)))
        self.assertEqual(files, {"src/cm/a.cpp": ({1: 1}, {})})

    def test_missed_lines_are_joined(self):
        files = coverage.counts_of(report(("src/cm/a.cpp", line(1, 1), line(2, 0), line(3, 0),
                                           line(9, 0)),
                                          ("src/mem/b.cpp", line(1, 0))))
        self.assertEqual(list(coverage.missed_of(files, {"cm"})),
                         ["src/cm/a.cpp:2-3", "src/cm/a.cpp:9-9"])

    def test_a_page_gets_the_new_table_in_place_of_the_old(self):
        files = coverage.counts_of(report(("src/cm/a.cpp", line(1, 1))))
        page = f"above\n{coverage.BEGIN}\n| old |\n{coverage.END}\nbelow\n"
        table = coverage.markdown_table(files)
        self.assertIn("| `cm/` | 1 | 1 | 100.0 | 0 | 0 | - |\n", table)
        self.assertEqual(coverage.with_table(page, table),
                         f"above\n{coverage.BEGIN}\n{table}{coverage.END}\nbelow\n")
        with self.assertRaises(SystemExit):
            coverage.with_table("no place\n", table)


if __name__ == "__main__":
    unittest.main()
