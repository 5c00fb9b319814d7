#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Debian's changelog out of CHANGELOG.md: an entry a version, which says where its changes are told.

    changelog.py CHANGELOG.md VERSION RELEASE MAINTAINER SECONDS     SECONDS: since 1970, the date of what is not released yet
"""
import calendar
import email.utils
import re
import sys
import time

ENTRY = """weft ({version}-{release}) unstable; urgency=medium

  * {what}

 -- {maintainer}  {date}
"""


def versions(text, seconds):
    """(version, seconds since 1970, whether it is released), newest first."""
    for name, date in re.findall(r"(?m)^## (?:Unreleased \()?([0-9]+(?:\.[0-9]+)+)\)?(?: - ([0-9]{4}-[0-9]{2}-[0-9]{2}))?$", text):
        yield name, calendar.timegm(time.strptime(date, "%Y-%m-%d")) if date else seconds, bool(date)


def debian(text, version, release, maintainer, seconds):
    found = list(versions(text, seconds))
    if not found or found[0][0] != version:
        newest = f"'{found[0][0]}'" if found else "none"
        raise ValueError(f"the newest version is {newest}, and the one to be packaged {version}: "
                         f"give it a heading '## {version} - DATE', or '## Unreleased ({version})'")
    return "\n".join(ENTRY.format(version=name, release=release, maintainer=maintainer, date=email.utils.formatdate(when),
                                  what="What has changed is told in changelog.gz." if released else
                                  "Not released yet; what has changed so far is told in changelog.gz.")
                     for name, when, released in found)


def main():
    if len(sys.argv) != 6:
        print(__doc__, file=sys.stderr)
        return 2
    path, version, release, maintainer, seconds = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        try:
            print(debian(file.read(), version, release, maintainer, int(seconds)), end="")
        except ValueError as error:
            print(f"changelog.py: {path}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
