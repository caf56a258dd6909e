"""What a wheel carries beside the package: the papers, the notebooks and the workflow, as `dialnb/project`.

In a checkout, editable or not, they stand at the top and are read there.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithProject(build_py):
    """Copy the project's folders into the package that is being built; list them for a source archive."""

    def project(self) -> list[str]:
        found = [path for name in ("papers", "notebooks", "workflow") for path in sorted(Path(name).rglob("*"))]
        hidden = [path for path in found if any(part.startswith(".") for part in path.parts)]
        return [path.as_posix() for path in found if path.is_file() and path not in hidden]

    def run(self) -> None:
        super().run()
        for name in [] if self.editable_mode else self.project():
            target = Path(self.build_lib) / "dialnb" / "project" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(name, str(target))

    def get_source_files(self) -> list[str]:
        return super().get_source_files() + self.project()


setup(cmdclass={"build_py": BuildWithProject})
