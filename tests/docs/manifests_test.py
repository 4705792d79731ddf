#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the manifests of docs/kubernetes.

    manifests_test.py pages REPOSITORY     their page shows each of them, as it is
    manifests_test.py schemas REPOSITORY   Kubernetes, JobSet and Kubeflow Trainer accept them, by the schemas that they
                                           publish; each field is then misspelt and given another type, which must be found

For the schemas it runs within what scripts/packaging/python_tools makes of requirements-kubernetes.txt.
"""

import copy
import glob
import os
import re
import sys

OLDEST = (1, 29)
OLDEST_OF = re.compile(r"^# .*\bKubernetes (\d+)\.(\d+) or newer", re.M)  # what a manifest says about itself
FREE_NAMES = {"labels", "limits", "selector"}  # maps with keys of the user's own
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.M | re.S)


def manifests(repository):
    found = sorted(glob.glob(os.path.join(repository, "docs/kubernetes/*.yaml")))
    assert found, "no manifests"
    return found


def check_pages(repository):
    page = os.path.join(repository, "docs/kubernetes/README.md")
    with open(page, encoding="utf-8") as file:
        blocks = BLOCK.findall(file.read())
    for path in manifests(repository):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text not in blocks:
            yield f"{page} does not show {os.path.basename(path)} as it is"


def versions():
    import kubernetes_validate

    found = sorted(tuple(map(int, each.split("."))) for each in kubernetes_validate.utils.all_versions())
    wanted = [each[:2] for each in found if each[:2] >= OLDEST]
    assert wanted[0] == OLDEST and wanted[-1] >= (1, 37), wanted
    return wanted


def versions_of(path):
    with open(path, encoding="utf-8") as file:
        oldest = tuple(map(int, OLDEST_OF.search(file.read()).groups()))
    return [each for each in versions() if each >= oldest]


def lost_of(given, taken, path):
    """Yields what a manifest has and the model of its kind has not taken."""
    if isinstance(given, dict) and isinstance(taken, dict):
        for key, value in given.items():
            if key in taken:
                yield from lost_of(value, taken[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}: unknown field"
    elif isinstance(given, list) and isinstance(taken, list) and len(given) == len(taken):
        for number, (one, other) in enumerate(zip(given, taken)):
            yield from lost_of(one, other, f"{path}[{number}]")
    elif given != taken:
        yield f"{path}: {given!r} is taken for {taken!r}"


def complaints_of_kubernetes(thing, version):
    import kubernetes_validate

    try:
        kubernetes_validate.validate(thing, ".".join(map(str, version)), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [str(error).splitlines()[0]]
    return []


def complaints_of_trainer(thing):
    from kubeflow_trainer_api import models

    kinds = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob,
             "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime}
    try:
        taken = kinds[thing["kind"]].from_dict(copy.deepcopy(thing)).to_dict()
    except (ValueError, AttributeError, TypeError) as error:  # pydantic's are ValueErrors; from_dict() takes some for granted
        return [str(error).splitlines()[0]]
    return list(lost_of(thing, taken, thing["kind"]))


def is_of_kubernetes(thing):
    return thing["apiVersion"] in ("v1", "batch/v1")


def complaints(thing, version):
    return complaints_of_kubernetes(thing, version) if is_of_kubernetes(thing) else complaints_of_trainer(thing)


def places(thing, path=()):
    """Yields the path of each field below a thing."""
    for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing):
        if isinstance(key, int) or path[-1:] not in [(name,) for name in FREE_NAMES]:
            yield path + (key,)
        if isinstance(value, (dict, list)):
            yield from places(value, path + (key,))


def changed(thing, path, change):
    other = copy.deepcopy(thing)
    holder = other
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return other


def misspell(holder, key):
    holder[key + "s"] = holder.pop(key)


def retype(holder, key):
    holder[key] = "much" if isinstance(holder[key], (int, dict, list)) else {"much": "more"}


def unnoticed(thing, version):
    """Yields faults of a manifest that its schema does not find."""
    for path in places(thing):
        if path[0] in ("apiVersion", "kind"):
            continue
        faults = [retype] if isinstance(path[-1], int) else [misspell, retype]
        for fault in faults:
            if not complaints(changed(thing, path, fault), version):
                yield f"{thing['kind']}: {fault.__name__} {'.'.join(map(str, path))}: nothing is found"


def job_of(objects):
    """Returns the Job that the controllers make of a manifest, which Kubernetes has to accept."""
    import controllers

    job, _ = controllers.job_and_service(objects)
    return {"apiVersion": "batch/v1", **job}


def check_schemas(repository):
    sys.path.insert(0, os.path.join(repository, "tests/integration/kubernetes"))
    import controllers

    for path in manifests(repository):
        everything = versions_of(path)
        objects = controllers.read(path)
        for thing in [*objects.values(), job_of(objects)]:
            for version in everything if is_of_kubernetes(thing) else everything[-1:]:
                for complaint in complaints(thing, version):
                    number = ".".join(map(str, version))
                    yield f"{os.path.basename(path)}, {thing['kind']}, Kubernetes {number}: {complaint}"
        for thing in objects.values():
            for version in {everything[0], everything[-1]} if is_of_kubernetes(thing) else everything[-1:]:
                yield from unnoticed(thing, version)


if __name__ == "__main__":
    wrong = list({"pages": check_pages, "schemas": check_schemas}[sys.argv[1]](sys.argv[2]))
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)
