#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README, documents and examples as a site, by MkDocs:

    site.py SOURCE OUT [MKDOCS]     OUT/html; SOURCE: the root of weft's source, or share/doc/weft of an installed one;
                                    MKDOCS: the program (default: the one on PATH)

Files lie to each other as in the source, so their links are right there, here and in what is installed. A link or an anchor that
leads nowhere ends it.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

PARTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs", "examples"]  # what is installed (cmake/install.cmake)
SETTINGS = {
    "site_name": "Weft",
    "docs_dir": "source",
    "site_dir": "html",
    "use_directory_urls": False,  # a folder of files can be read without a server
    "theme": {"name": "readthedocs", "highlightjs": False},  # with it pages ask another host for a script
    "markdown_extensions": ["tables", "fenced_code", "sane_lists", "toc"],
    "validation": {"nav": {"omitted_files": "warn", "not_found": "warn"},
                   "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"}},
}


class Wrong(Exception):
    """No site can be made of it."""


def navigation(source):
    """The pages in the order in which README names them (its last section), then those that it leaves out."""
    _, found, more = (source / "README.md").read_text().partition("\n## More\n")
    if not found:
        raise Wrong(f"{source / 'README.md'} has no section '## More', whose links are the order of pages")
    named = [name for name in re.findall(r"\]\((docs/[\w-]+\.md)\)", more)]
    pages = {str(path.relative_to(source)) for path in (source / "docs").glob("*.md")}
    examples = sorted(str(path.relative_to(source)) for path in (source / "examples").rglob("*.md"))
    return [{"Weft": "README.md"}, {"Documents": [*named, *sorted(pages - set(named))]}, {"Examples": examples},
            {"Changes": "CHANGELOG.md"}, {"Contributing": "CONTRIBUTING.md"}]


def build(source, out, mkdocs):
    missing = [name for name in PARTS if not (source / name).exists()]
    if missing:
        raise Wrong(f"{source} has no {', '.join(missing)}: name the root of weft's source, or share/doc/weft")
    shutil.rmtree(out, ignore_errors=True)
    (out / "source").mkdir(parents=True)
    for name in PARTS:
        if (source / name).is_dir():
            shutil.copytree(source / name, out / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source / name, out / "source")
    (out / "mkdocs.yml").write_text(json.dumps({**SETTINGS, "nav": navigation(source)}, indent=1))  # JSON is YAML
    try:
        done = subprocess.run([mkdocs, "build", "--strict", "--config-file", str(out / "mkdocs.yml")], capture_output=True,
                              text=True, check=False)
    except OSError as error:
        raise Wrong(f"{mkdocs} cannot be run: {error}; ./bootstrap site installs it") from error
    if done.returncode:
        raise Wrong(f"MkDocs ended with {done.returncode}:\n{done.stdout}{done.stderr}".rstrip())


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    out = pathlib.Path(sys.argv[2])
    try:
        build(pathlib.Path(sys.argv[1]), out, sys.argv[3] if len(sys.argv) > 3 else "mkdocs")
    except Wrong as error:
        print(f"site.py: {error}", file=sys.stderr)
        return 1
    print(out / "html" / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
