"""The one thing pyproject.toml cannot say: `templates/` is shipped as `agentruntime/templates`."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["agentruntime*", "approvals*"]), "agentruntime.templates"],
    # An installed copy finds its pages through APP_DIRS, so they travel inside the app.
    package_dir={"agentruntime.templates": "templates"},
)
