#!/usr/bin/env bash
# manifest.sh: prints deploy/fairlead.yaml, which is for users without kustomize: the files of the base, with their comments.
#   bash scripts/manifest.sh > deploy/fairlead.yaml
set -euo pipefail
cd "$(dirname "$0")/../deploy/kustomize/base"
cat header.txt rbac.yaml
for f in config.yaml daemonset.yaml; do echo ---; cat "$f"; done
