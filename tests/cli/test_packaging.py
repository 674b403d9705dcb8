"""The package that is built holds every folder and data file."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_package_is_listed() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {".".join(p.parent.relative_to(ROOT).parts) for p in (ROOT / "twill").rglob("__init__.py")}
    assert set(tools["packages"]) == folders | {"twill.kernels", "twill.schedules"}
    assert tools["package-dir"] == {"twill.kernels": "kernels", "twill.schedules": "schedules"}
    assert tools["package-data"]["twill.model.machines"] == ["*.toml"]


def test_mapped_folders_import() -> None:
    import twill.kernels
    import twill.schedules

    assert Path(str(twill.kernels.__file__)).parent == ROOT / "kernels"
    assert Path(str(twill.schedules.__file__)).parent == ROOT / "schedules"
