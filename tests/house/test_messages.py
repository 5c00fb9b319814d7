# SPDX-License-Identifier: Apache-2.0
"""The page of error codes is what the code says, and says something of each."""
import re

import messages


def test_page__is_what_the_tables_say():
    assert messages.PAGE.read_text() == messages.page(), "python3 tests/house/messages.py --write"


def test_help__has_a_row_for_each_code_in_their_order():
    assert [name for name, *_ in messages.codes()] == list(messages.helps())
    assert len(messages.helps()) > 25


def test_help__is_sentences_and_names_flags_that_exist():
    options = "".join(path.read_text() for path in (messages.ROOT / "cli").glob("*.c"))
    options += (messages.ROOT / "controller/main.c").read_text() + (messages.ROOT / "worker/program/options.c").read_text()
    for name, texts in messages.helps().items():
        for text in texts:
            assert text[0].isupper() and text.endswith("."), (name, text)
            for flag in re.findall(r"--([a-z][a-z-]+)", text):
                assert f'"{flag}"' in options or flag in ("help", "version"), (name, flag)
