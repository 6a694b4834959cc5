"""In somebody's project: the wheel, `startproject`, the lines of the README, a first agent."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.readme import block

pytestmark = [pytest.mark.slow, pytest.mark.database("sqlite")]


def run(*command: object, where: Path, **environment: str) -> str:
    outside = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DJANGO", "DATABASE_URL", "REDIS_URL"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=where,
        env=outside | environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory) -> Path:
    """The project, installed from its wheel into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT),
        where=folder,
    )
    target = folder / "site-packages"
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(target)
    return target


def test_the_wheel_carries_its_data(site_packages):
    for part in (
        "agentruntime/migrations/0001_initial.py",
        "agentruntime/py.typed",
        "agentruntime/templates/admin/agentruntime/run/change_form.html",
        "agentruntime/templates/agentruntime/thread.html",
        "approvals/migrations/0001_initial.py",
    ):
        assert (site_packages / part).exists(), part
    assert list(site_packages.glob("agentruntime/static/**/*.js"))


def test_a_fresh_project_runs_its_first_agent(site_packages, tmp_path):
    def manage(*words: object) -> str:
        return run(
            *(sys.executable, "manage.py", *words), where=site, PYTHONPATH=str(site_packages)
        )

    run(sys.executable, "-m", "django", "startproject", "mysite", where=tmp_path)
    site = tmp_path / "mysite"
    manage("startapp", "shop")
    settings = site / "mysite" / "settings.py"
    settings.write_text(
        settings.read_text() + block("settings.py") + '\nINSTALLED_APPS += ["shop"]\n'
    )
    (site / "mysite" / "urls.py").write_text(block("urls.py"))
    (site / "mysite" / "asgi.py").write_text(block("asgi.py"))
    (site / "shop" / "agents.py").write_text(block("agents.py"))

    assert "no issues" in manage("check")
    manage("migrate", "-v", "0")
    told = manage("start_run", "shop", "--message", "Please refund order 1042", "--follow")
    assert "run.completed" in told
    assert "9.90" in told
    page = (
        "from django.test import Client; r = Client(SERVER_NAME='localhost').get('/', follow=True)"
    )
    assert "200" in manage("shell", "-c", f"{page}; print(r.status_code)")
    where = manage("shell", "-c", "import agentruntime, mysite.asgi; print(agentruntime.__file__)")
    assert str(site_packages) in where


def test_every_package_is_shipped():
    import tomllib

    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {
        ".".join(file.parent.relative_to(ROOT).parts)
        for app in ("agentruntime", "approvals")
        for file in (ROOT / app).rglob("*.py")
    }
    assert set(shipped) == found | {"agentruntime.templates"}
