"""Brings the environment up to date: looks at what is there, and does what is missing or was made from other things."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from . import glance, library, probe, stamp, toolchain
from .commands import Commands, Runner
from .environment import Environment, Requirements
from .library import NAME, Library
from .lock import exclusive
from .places import Places
from .report import Report
from .toolchain import Plan

# Variables that would send pip or Python elsewhere.
HIDDEN = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")


def prepare(places: Places, level: str, environ: Mapping[str, str], report: Report) -> None:
    """Make the environment ready for `level`. Raises SetupError."""

    def waiting() -> None:
        report.say("another set-up of this environment is at work; waiting for it to finish")

    root, venv = str(places.root), str(places.venv)
    with report.working(), exclusive(places.lock, waiting):
        if stamp.is_complete(root, venv, level, environ):
            return  # done by the one that we waited for
        chosen = stamp.choices(environ, stamp.read(venv))
        inner = inner_environ(environ, chosen, str(places.python.parent))
        wishes = probe.wishes(chosen)
        plan = toolchain.decide(probe.machine(inner, wishes), wishes)
        for notice in plan.notices:
            report.say(notice)
        runner = Commands(places.cache / "logs", inner)
        try:
            Preparation(places, level, chosen, inner, plan, runner, report).run()
        except BaseException:
            runner.stop()
            raise


def inner_environ(environ: Mapping[str, str], chosen: Mapping[str, str], programs: str) -> dict[str, str]:
    """The variables for all that is started from here. CMAKE_ARGS is no part of them: the plan has it."""
    inner = {name: value for name, value in environ.items() if name not in (*HIDDEN, *stamp.CHOICES)}
    inner |= {name: value for name, value in chosen.items() if name not in ("CMAKE_ARGS", "EDGESPEC_WHEEL_INDEX")}
    inner["PATH"] = os.pathsep.join((programs, environ.get("PATH", os.defpath)))
    return inner


class Preparation:
    """One run of the set-up. Each step is taken back in the stamp before it is done again, and noted when done."""

    def __init__(
        self,
        places: Places,
        level: str,
        chosen: Mapping[str, str],
        environ: Mapping[str, str],
        plan: Plan,
        runner: Runner,
        report: Report,
    ) -> None:
        self._places = places
        self._level = level
        self._chosen = dict(chosen)
        self._environ = environ
        self._plan = plan
        self._runner = runner
        self._report = report
        self._environment = Environment(places, runner, report)
        self._requirements = Requirements.read(places)
        self._stamp: stamp.Stamp = {}

    def run(self) -> None:
        known = self._environment.make()
        if known.get("level") == "dev":
            self._level = "dev"  # test tools that are there stay in step
        self._stamp = {name: known.get(name) for name in ("venv", "python", "level", "packages", "library", "origin")}
        self._note(choices=self._chosen, libraries=str(self._environment.libraries))
        if self._plan.wheel_index:
            self._take_wheel()
        else:
            self._build()
        self._environment.link_repository()
        self._environment.try_import()
        self._note(
            level=self._level,
            inputs=stamp.inputs(str(self._places.root), str(self._places.venv), self._chosen),
            accelerators=glance.accelerators(self._environ),
        )

    def _build(self) -> None:
        """llama.cpp built here. The build has the processor and pip the network, so they go on at the same time."""
        builder = Library(self._places, self._plan, self._requirements.llama, self._runner, self._report, self._environ)
        key = builder.key
        fingerprint = self._fingerprint("built")
        install = self._stamp["packages"] != fingerprint
        build = stamp.installed_key(self._stamp) != key or self._stamp["library"] != key
        if tools := builder.needed_tools(bindings=install, build=build):
            self._environment.install_build_tools(tools)
        wheel = builder.bindings() if install else None
        with ThreadPoolExecutor(1) as pool:
            building = pool.submit(builder.build) if build else None
            try:
                if wheel:
                    self._install(fingerprint, str(wheel))
                made = building.result() if building else None
            except BaseException:
                self._runner.stop()
                raise
        if made:
            self._note(library=None)
            library.put(made, self._environment.libraries)
            self._note(library=key)

    def _take_wheel(self) -> None:
        """A ready wheel from the index that the user named."""
        index = self._plan.wheel_index
        key = "wheel-" + hashlib.sha256(f"{self._requirements.llama} {index}".encode()).hexdigest()[:16]
        fingerprint = self._fingerprint(key)
        if self._stamp["packages"] == fingerprint and stamp.installed_key(self._stamp) == key:
            return
        options = ("--only-binary", NAME, "--extra-index-url", index)
        self._install(fingerprint, f"{NAME}=={self._requirements.llama}", options, origin=key)
        facts = {"key": key, "llama_cpp_python": self._requirements.llama, "backend": "wheel"}
        (self._environment.libraries / "build.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        self._note(library=key)

    def _install(self, fingerprint: str, llama: str, options: tuple[str, ...] = (), origin: str = "built") -> None:
        self._note(packages=None)
        if self._stamp["origin"] != origin:  # pip would leave a llama-cpp-python of the same version as it is
            self._environment.remove_library()
            self._note(origin=None, library=None)
        wanted = self._requirements.wanted(self._level, self._plan.machine.nvidia)
        self._environment.install_packages([*wanted, llama], options)
        self._note(packages=fingerprint, origin=origin)

    def _fingerprint(self, origin: str) -> str:
        return self._requirements.fingerprint(self._level, self._plan.machine.nvidia, origin)

    def _note(self, **facts: object) -> None:
        self._stamp.update(facts)
        stamp.write(str(self._places.venv), self._stamp)
