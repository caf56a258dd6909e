"""`python -m tools.printed`: judge every claim on the cells that its paper prints, and keep what they say.

Every run asks that first, and it follows from the paper's files alone: `papers/<slug>/printed.json` holds the answers
and the hashes of these files. Where one of them has changed since, a run judges again by itself, which takes seconds.
"""

from __future__ import annotations

from dialnb.claims.judging import paper_checks
from dialnb.claims.papers import STUDIES
from dialnb.files import project_root, write_json


def main() -> None:
    for slug in STUDIES:
        path = project_root() / "papers" / slug / "printed.json"
        path.unlink(missing_ok=True)
        write_json(path, paper_checks(slug))
        print(path.relative_to(project_root()))


if __name__ == "__main__":
    main()
