#!/bin/bash
# Checks the manifests of docs/kubernetes by the schemas that Kubernetes, JobSet and Kubeflow Trainer publish. These come
# from PyPI, once, into build/packaging/kubernetes.
#
#   schemas_test.sh REPOSITORY
set -euo pipefail
cd "$1"
python=$(scripts/packaging/python_tools scripts/packaging/requirements-kubernetes.txt)
exec "$python" tests/docs/manifests_test.py schemas "$1"
