"""Patches: each hunk at exactly one place, or nothing at all and a word on what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.agents.openai_loop.hunks import apply_patch
from vibeserve.agents.openai_loop.reach import Reach, reach_of
from vibeserve.agents.openai_loop.toolbox import ToolError

SOURCE = """\
class A:
    def run(self):
        x = 1
        return x


class B:
    def run(self):
        x = 1
        return x
"""


@pytest.fixture
def reach(workspace: Path) -> Reach:
    (workspace / "a.py").write_text(SOURCE)
    return reach_of(workspace, is_writable=True, read_only=())


def patched(reach: Reach, *lines: str, path: str = "a.py") -> str:
    """The file after one update of it."""
    apply_patch(reach, "\n".join(["*** Begin Patch", f"*** Update File: {path}", *lines, "*** End Patch"]))
    return (reach.workspace / path).read_text()


def refused(reach: Reach, *lines: str) -> str:
    """What a patch of `a.py` is refused for; the file stays."""
    with pytest.raises(ToolError) as caught:
        patched(reach, *lines)
    assert (reach.workspace / "a.py").read_text() == SOURCE
    return str(caught.value)


def test_several_files_at_once(reach: Reach, workspace: Path) -> None:
    patch = """\
*** Begin Patch
*** Update File: a.py
@@ class B:
     def run(self):
-        x = 1
+        x = 2

*** Add File: new/b.py
+import os
+
+print(os)
*** Delete File: README.md
*** End Patch
"""
    assert apply_patch(reach, patch) == "updated a.py (+1 -1)\nadded new/b.py (+3)\ndeleted README.md"
    assert (workspace / "a.py").read_text() == SOURCE[::-1].replace("1 = x", "2 = x", 1)[::-1]
    assert (workspace / "new" / "b.py").read_text() == "import os\n\nprint(os)\n"
    assert not (workspace / "README.md").exists()


def test_two_hunks_and_a_blank_line_of_context(reach: Reach) -> None:
    first = ["@@", "         return x", "", "", "-class B:", "+class C:"]
    text = patched(reach, *first, "@@", "-        x = 1", "+        y = 1")
    assert text == SOURCE.replace("class B", "class C")[::-1].replace("1 = x", "1 = y", 1)[::-1]


def test_an_ambiguous_hunk_is_refused_with_its_places(reach: Reach) -> None:
    text = refused(reach, "@@", "-        x = 1", "+        x = 2")
    assert text == (
        "hunk 1 of a.py matches at 2 places, lines 3, 9: add lines around it, or '@@ LINE' with a line above it that "
        "stands once"
    )
    # a line that stands twice does not tell them apart
    assert "matches at 2 places" in refused(reach, "@@ def run(self):", "-        x = 1", "+        x = 2")


def test_anchors_within_anchors(reach: Reach) -> None:
    text = patched(reach, "@@ class A:", "@@ def run(self):", "-        x = 1", "+        x = 2")
    assert text == SOURCE.replace("x = 1", "x = 2", 1)


def test_an_anchor_may_be_told_once_more(reach: Reach) -> None:
    text = patched(reach, "@@ class B:", " class B:", "     def run(self):", "-        x = 1")
    assert text.count("x = 1") == 1 and text.endswith("    def run(self):\n        return x\n")


def test_a_hunk_that_matches_nowhere_is_told_the_nearest_lines(reach: Reach) -> None:
    text = refused(reach, "@@", " class B:", "     def run(self):", "-        x = 7", "+        x = 2")
    assert text == (
        "hunk 1 of a.py does not match any lines; the nearest lines are\n"
        "     7\tclass B:\n     8\t    def run(self):\n     9\t        x = 1\n"
        "the hunk has '        x = 7' where the file has '        x = 1'"
    )
    # tabs for blanks: the lines are found, and shown as they are
    assert "the hunk has '\\tx = 1' where the file has '        x = 1'" in refused(reach, "-\tx = 1", "+\tx = 2")
    assert refused(reach, "-nothing of the kind", "+x").endswith("does not match any lines")
    assert "no line 'class Z:' below what is before it" in refused(reach, "@@ class Z:", "-        x = 1", "+")


def test_hunks_come_in_the_order_of_the_file(reach: Reach) -> None:
    text = refused(reach, "@@", "-class B:", "+class C:", "@@", "-class A:", "+class D:")
    assert text == "hunk 2 of a.py matches only at line 1, above the hunk before it: put hunks in order"


def test_lines_that_replace_nothing(reach: Reach, workspace: Path) -> None:
    assert "hunk 1 of a.py has + lines alone: give a line of the file" in refused(reach, "@@", "+import os")
    assert patched(reach, "@@ class B:", '+    """Two."""').split("class B:\n")[1].startswith('    """Two."""\n')
    assert patched(reach, "@@", "+END = 1", "*** End of File").endswith("return x\nEND = 1\n")
    (workspace / "empty.py").write_text("")
    assert patched(reach, "+x = 1", path="empty.py") == "x = 1\n"


def test_the_end_of_the_file_tells_apart(reach: Reach) -> None:
    text = patched(reach, "@@", "         x = 1", "-        return x", "+        return 2", "*** End of File")
    assert text.count("return x") == 1 and text.endswith("return 2\n")


def test_it_does_not_match_at_the_end(reach: Reach) -> None:
    assert refused(reach, "-class B:", "+class C:", "*** End of File") == (
        "hunk 1 of a.py does not match at the end of the file"
    )


def test_a_unified_diff(reach: Reach, workspace: Path) -> None:
    diff = """\
diff --git a/a.py b/a.py
index 000..111 100644
--- a/a.py\t2024-01-01
+++ b/a.py
@@ -8,3 +8,3 @@ class B:
     def run(self):
-        x = 1
+        x = 2
         return x
--- /dev/null
+++ b/new.py
@@ -0,0 +1,2 @@
+one
+two
\\ No newline at end of file
--- a/README.md
+++ /dev/null
@@ -1 +0,0 @@
-a runtime
"""
    assert apply_patch(reach, diff) == "updated a.py (+1 -1)\nadded new.py (+2)\ndeleted README.md"
    assert (workspace / "a.py").read_text() == SOURCE[::-1].replace("1 = x", "2 = x", 1)[::-1]
    assert (workspace / "new.py").read_text() == "one\ntwo"


def test_line_numbers_that_are_wrong_do_not_decide(reach: Reach) -> None:
    diff = "--- a.py\n+++ a.py\n@@ -5,1 +5,1 @@\n-        x = 1\n+        x = 2\n"
    with pytest.raises(ToolError, match="matches at 2 places, lines 3, 9"):
        apply_patch(reach, diff)


def test_line_numbers_follow_the_hunks_before(reach: Reach) -> None:
    diff = (
        "--- a.py\n+++ a.py\n@@ -1,1 +1,3 @@\n-class A:\n+# 1\n+# 2\n+class A:\n"
        "@@ -9,1 +11,1 @@\n-        x = 1\n+        x = 2\n"
    )
    apply_patch(reach, diff)
    assert (reach.workspace / "a.py").read_text() == "# 1\n# 2\n" + SOURCE[::-1].replace("1 = x", "2 = x", 1)[::-1]


def test_a_fence_around_the_patch(reach: Reach) -> None:
    apply_patch(reach, "```diff\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-class A:\n+class C:\n```\n")
    assert (reach.workspace / "a.py").read_text().startswith("class C:\n")


def test_line_ends_stay(reach: Reach, workspace: Path) -> None:
    (workspace / "dos.txt").write_bytes(b"one\r\ntwo\r\nthree")
    apply_patch(reach, "*** Begin Patch\n*** Update File: dos.txt\n-two\n+2\n+zwei\n*** End Patch")
    assert (workspace / "dos.txt").read_bytes() == b"one\r\n2\r\nzwei\r\nthree"


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ("", "the patch changes no file: a patch begins with '*** Begin Patch'"),
        ("hello", "line 1 of the patch ('hello'): a patch begins with '*** Begin Patch'"),
        ("*** Update File: a.py\n", "says to update 'a.py' and has no hunk for it"),
        ("*** Update File: a.py\n@@\n*x\n", "line 3 of the patch ('*x'): each line of a hunk of 'a.py' begins with"),
        ("*** Add File: n.py\nx = 1\n", "line 2 of the patch ('x = 1'): each line of a hunk of 'n.py' begins with '+'"),
        ("*** Add File: a.py\n+x\n", "'a.py' exists already; use '*** Update File: a.py' or write_file"),
        ("*** Delete File: gone.py\n", "there is no 'gone.py'"),
        ("*** Delete File: a.py\nx\n", "nothing but the next file may follow '*** Delete File'"),
        ("*** Update File: nope/a.py\n-x\n+y\n", "there is no 'nope/a.py'; did you mean a.py?"),
        ("*** Update File: ../a.py\n-x\n+y\n", "must not hold '..'"),
        ("*** Add File: /etc/cron.d/x\n+x\n", "lies outside"),
        ("*** Update File: a.py\n*** Move to: b.py\n", "renames, copies and binary files are not taken"),
        ("*** Update File: a.py\n-class A:\n+class A:\n", "the patch leaves 'a.py' as it is"),
        ("*** Delete File: a.py\n*** Add File: a.py\n+x\n", "the patch names 'a.py' twice"),
    ],
)  # fmt: skip
def test_what_is_no_patch_is_told_why(reach: Reach, patch: str, expected: str) -> None:
    with pytest.raises(ToolError) as caught:
        apply_patch(reach, patch)
    assert expected in str(caught.value)
    assert (reach.workspace / "a.py").read_text() == SOURCE


def test_nothing_is_written_unless_everything_matches(reach: Reach, workspace: Path) -> None:
    patch = "*** Add File: b.py\n+x\n*** Update File: a.py\n-nowhere\n+x\n"
    with pytest.raises(ToolError, match=r"hunk 1 of a\.py does not match"):
        apply_patch(reach, patch)
    assert not (workspace / "b.py").exists()
