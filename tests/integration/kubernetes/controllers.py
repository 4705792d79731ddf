#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Turns a manifest into the pods that Kubernetes makes of it, and prints them as JSON.

    controllers.py MANIFEST.yaml [UID]

Plays the API server and the controllers of Job, JobSet and Kubeflow Trainer, as far as ddprun can tell: TrainJob and
runtime become a JobSet, a JobSet becomes a Job, a Job becomes pods. What a manifest has and this file does not know is
an error, so that nothing of a manifest goes untested in silence. Sources: kubernetes pkg/controller/job (indexed_job_utils,
job_controller), jobset pkg/controllers/jobset_controller, trainer pkg/runtime/framework/plugins (torch, jobset).
"""

import copy
import json
import re
import sys

import yaml

TORCH_PORT = "29500"  # the Trainer's constants.ContainerTrainerPort
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


class Refused(Exception):
    pass


def read(path):
    """Returns the objects of a manifest by their kind."""
    with open(path, encoding="utf-8") as file:
        objects = list(yaml.safe_load_all(file))
    return {each["kind"]: each for each in objects}


def only(items, what):
    if len(items) != 1:
        raise Refused(f"{len(items)} {what}, not one")
    return items[0]


def to_jobset(runtime, train_job):
    """Returns the JobSet that the Trainer makes of a TrainJob and its runtime."""
    reference = train_job["spec"]["runtimeRef"]
    if (reference["kind"], reference["name"]) != (runtime["kind"], runtime["metadata"]["name"]):
        raise Refused(f"runtimeRef names {reference}, which is not in the manifest")
    if runtime["spec"]["mlPolicy"].get("torch") is None:
        raise Refused("mlPolicy is not torch")
    name = train_job["metadata"]["name"]
    trainer = train_job["spec"]["trainer"]
    nodes = trainer.get("numNodes", runtime["spec"]["mlPolicy"]["numNodes"])
    spec = copy.deepcopy(runtime["spec"]["template"]["spec"])
    replicated = only(spec["replicatedJobs"], "replicated jobs")
    labels = replicated["template"]["metadata"]["labels"]
    if labels["trainer.kubeflow.org/trainjob-ancestor-step"] != "trainer" or replicated["name"] != "node":
        raise Refused("no replicated job is the trainer's")
    replicated["replicas"] = 1
    job = replicated["template"]["spec"]
    job["completions"] = job["parallelism"] = nodes
    container = only(job["template"]["spec"]["containers"], "containers")
    if container["name"] != "node":
        raise Refused("the container is not called node")
    for field in ("image", "command", "args"):
        if field in trainer:
            container[field] = trainer[field]
    container["resources"] = trainer.get("resourcesPerNode", container.get("resources", {}))
    own = [
        {"name": "PET_NNODES", "value": str(nodes)},
        {"name": "PET_NPROC_PER_NODE", "value": str(trainer.get("numProcPerNode", "auto"))},
        {"name": "PET_NODE_RANK",
         "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}},
        {"name": "PET_MASTER_ADDR", "value": f"{name}-node-0-0.{name}"},
        {"name": "PET_MASTER_PORT", "value": TORCH_PORT},
    ]
    given = trainer.get("env", [])
    reserved = {each["name"] for each in own}
    for each in given + container.get("env", []):
        if each["name"] in reserved:
            raise Refused(f"{each['name']} is reserved")
    replaced = {each["name"] for each in given}
    container["env"] = [each for each in container.get("env", []) if each["name"] not in replaced] + given + own
    return {"kind": "JobSet", "metadata": {"name": name}, "spec": spec}


def to_job(jobset):
    """Returns the Job and the Service that the JobSet controller makes of a JobSet with one replicated job."""
    name = jobset["metadata"]["name"]
    spec = jobset["spec"]
    replicated = only(spec["replicatedJobs"], "replicated jobs")
    if replicated.get("replicas", 1) != 1:
        raise Refused("more than one Job")
    network = spec.get("network", {})
    subdomain = network.get("subdomain", name)
    if not network.get("enableDNSHostnames", True):
        raise Refused("pods have no names")
    job = {"kind": "Job", "metadata": {"name": f"{name}-{replicated['name']}-0"},
           "spec": copy.deepcopy(replicated["template"]["spec"])}
    labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": replicated["name"],
              "jobset.sigs.k8s.io/job-index": "0"}
    annotations = dict(labels)
    coordinator = spec.get("coordinator")
    if coordinator:
        host = "-".join([name, coordinator["replicatedJob"], str(coordinator.get("jobIndex", 0)),
                         str(coordinator.get("podIndex", 0))])
        annotations["jobset.sigs.k8s.io/coordinator"] = f"{host}.{subdomain}"
    template = job["spec"]["template"]
    template.setdefault("metadata", {}).setdefault("labels", {}).update(labels)
    template["metadata"].setdefault("annotations", {}).update(annotations)
    template["spec"]["subdomain"] = subdomain
    job["spec"].setdefault("completionMode", "Indexed")
    service = {"metadata": {"name": subdomain},
               "spec": {"clusterIP": "None", "selector": {"jobset.sigs.k8s.io/jobset-name": name},
                        "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True)}}
    return job, service


def job_and_service(objects):
    """Returns the Job that a manifest leads to, and the Service that gives its pods names; None if there is none."""
    if "TrainJob" in objects:
        return to_job(to_jobset(objects["TrainingRuntime"], objects["TrainJob"]))
    if "JobSet" in objects:
        return to_job(objects["JobSet"])
    return copy.deepcopy(objects["Job"]), objects.get("Service")


def value_of(variable, pod):
    if "value" in variable:
        if "$(" in variable["value"]:
            raise Refused(f"{variable['name']} refers to another variable, which is not played")
        return variable["value"]
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    subscript = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
    if not subscript:
        raise Refused(f"{path} is not played")
    return pod[subscript[1]][subscript[2]]  # Kubernetes gives an empty text for a label that is not there


def shared_memory_of(pod_spec, container):
    """Returns the size of /dev/shm, as mount(8) takes it."""
    for mount in container.get("volumeMounts", []):
        if mount["mountPath"] != "/dev/shm":
            continue
        volume = next(each for each in pod_spec["volumes"] if each["name"] == mount["name"])
        if volume["emptyDir"]["medium"] != "Memory":
            raise Refused("/dev/shm is on a disk")
        return re.fullmatch(r"(\d+[MG])i", volume["emptyDir"]["sizeLimit"])[1].lower()
    return "64m"  # what containers have by default


def name_of(host, spec, labels, service):
    """Returns the name by which other pods find one; empty: it has none."""
    if service is None:
        if "subdomain" in spec:
            raise Refused("no service gives the pods names")
        return ""
    selects = service["spec"]["selector"].items() <= labels.items()
    is_headless = service["spec"]["clusterIP"] == "None"
    if not (selects and is_headless and service["metadata"]["name"] == spec["subdomain"]):
        raise Refused("no headless service gives the pods names")
    if not service["spec"].get("publishNotReadyAddresses"):
        raise Refused("pods have no names until they are ready")
    return f"{host}.{spec['subdomain']}"


def pod_of(job, service, index, uid):
    """Returns what the kubelet starts for one index of an indexed Job."""
    name = job["metadata"]["name"]
    template = job["spec"]["template"]
    spec = template["spec"]
    container = only(spec["containers"], "containers")
    metadata = template.get("metadata", {})
    pod = {
        "labels": {**metadata.get("labels", {}), "batch.kubernetes.io/controller-uid": uid,
                   "batch.kubernetes.io/job-name": name, INDEX_ANNOTATION: str(index)},
        "annotations": {**metadata.get("annotations", {}), INDEX_ANNOTATION: str(index)},
    }
    host = f"{name}-{index}"
    environment = {each["name"]: value_of(each, pod) for each in container.get("env", [])}
    environment["JOB_COMPLETION_INDEX"] = str(index)
    environment["KUBERNETES_SERVICE_HOST"] = "10.96.0.1"
    return {"host": host, "dns": name_of(host, spec, pod["labels"], service), "container": container["name"],
            "command": container["command"] + container.get("args", []), "environment": environment,
            "gpus": container["resources"]["limits"]["nvidia.com/gpu"], "shm": shared_memory_of(spec, container),
            "grace": spec.get("terminationGracePeriodSeconds", 30)}


def play(path, uid):
    job, service = job_and_service(read(path))
    spec = job["spec"]
    if spec.get("completionMode") != "Indexed" or spec["completions"] != spec["parallelism"]:
        raise Refused("not all pods of the job run at once, each with an index")
    if spec["template"]["spec"]["restartPolicy"] != "Never":
        raise Refused("the kubelet restarts containers, which is not played")
    return {"spec": spec, "pods": [pod_of(job, service, index, uid) for index in range(spec["completions"])]}


if __name__ == "__main__":
    try:
        print(json.dumps(play(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "uid")))
    except (Refused, KeyError) as error:
        sys.exit(f"controllers.py: {sys.argv[1]}: {error}")
