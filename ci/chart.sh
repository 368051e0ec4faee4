#!/usr/bin/env bash
# Checks the Helm chart deploy/helm/relativistd: helm lint, and kubeconform with the schemas of the oldest and of a
# recent Kubernetes and of the Prometheus operator; wrong values are refused; and a container runs as the chart
# describes it, with its probes, volumes and secrets, in the image of ci/image.sh. Builds helm and kubeconform (Go 1.26)
# if they are missing. No cluster is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

source ci/debian.sh
debian go golang-go
debian pip python3-pip
debian /usr/lib/python3/dist-packages/yaml python3-yaml
debian openssl openssl
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/chart
chart=deploy/helm/relativistd
kubernetes=(1.30.0 1.37.0)
packages=(helm.sh/helm/v3/cmd/helm@v3.22.0 github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
  github.com/prometheus-operator/prometheus-operator@v0.85.0 kubernetes-validate==1.37.0)

fail() {
  echo "chart: $*" >&2
  exit 1
}

# The package kubernetes-validate has the schemas of Kubernetes; the module of the operator has definitions, from which
# kubeconform's script makes schemas.
install_tools() {
  local operator converter version
  rm -rf "$tools"
  mkdir -p "$tools/schemas"
  GOBIN=$tools/bin CGO_ENABLED=0 retry go install -ldflags='-s -w' "${packages[0]}"
  GOBIN=$tools/bin CGO_ENABLED=0 retry go install -ldflags='-s -w' "${packages[1]}"
  operator=$(retry go mod download -json "${packages[2]}" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  converter=$(go mod download -json "${packages[1]/\/cmd\/kubeconform/}" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  (cd "$tools/schemas" && FILENAME_FORMAT='{kind}-{fullgroup}-{version}' DENY_ROOT_ADDITIONAL_PROPERTIES=1 \
    /usr/bin/python3 "$converter/scripts/openapi2jsonschema.py" \
    "$operator"/example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,prometheusrules}.yaml >/dev/null)
  retry pip download --quiet --disable-pip-version-check --no-deps --dest "$tools" "${packages[3]}"
  /usr/bin/python3 -m zipfile -e "$tools"/kubernetes_validate-*.whl "$tools/unpacked"
  for version in "${kubernetes[@]}"; do
    mv "$tools/unpacked/kubernetes_validate/kubernetes-json-schema/v$version-local-strict" "$tools/schemas/$version"
  done
  # They refer to each other by an address in the network. Make that a path.
  find "$tools/schemas" -path '*.0/*.json' -exec sed -i 's|"\$id": "https://kubernetes.io/|"x-id": "|; s|"/api/_definitions.json|"_definitions.json|' {} +
  rm -rf "$tools"/{unpacked,*.whl}
  echo "${packages[*]}" >"$tools/packages"
}

# Helm reports the links to the alert rules and the dashboard, which it follows.
helm() {
  "$tools/bin/helm" "$@" 2> >(grep -v 'found symbolic link' >&2)
}
# rendered VERSION FLAG...: the manifests for this version of Kubernetes.
rendered() {
  helm template cache "$chart" --namespace caches --kube-version "$1" "${@:2}"
}
# conforms VERSION: whether the manifests on stdin are valid.
conforms() {
  "$tools/bin/kubeconform" -strict -summary -schema-location "$tools/schemas/$1/{{.ResourceKind}}{{.KindSuffix}}.json" \
    -schema-location "$tools/schemas/{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json"
}
# refuses MESSAGE FLAG...
refuses() {
  local output
  ! output=$(rendered "${kubernetes[0]}" "${@:2}" 2>&1) || fail "helm accepts ${*:2}"
  grep -q "$1" <<<"$output" || fail "helm does not say '$1' for ${*:2}, but: $output"
}

[ "$(cat "$tools/packages" 2>/dev/null)" = "${packages[*]}" ] || install_tools
version=$(cargo pkgid --package relativistd | sed 's/.*[#@]//')
[ "$(sed -nE 's/^(version|appVersion): //p' "$chart/Chart.yaml" | sort -u)" = "$version" ] ||
  fail "Chart.yaml has another version than Cargo.toml, which has $version"

everything=(--set persistence.enabled=true,persistence.storageClass=fast,users.secret=users,tls.secret=tls
  --set 'tls.clientCertificates=optional,antiAffinity=required,image.pullSecrets[0].name=registry'
  --set metrics.serviceMonitor.enabled=true,metrics.rules.enabled=true,metrics.dashboard.enabled=true
  --set 'networkPolicy.enabled=true,networkPolicy.clients[0].podSelector.matchLabels.role=web'
  --set 'networkPolicy.scrapers[0].namespaceSelector.matchLabels.name=monitoring'
  --set 'podLabels.team=a,podAnnotations.note=b,nodeSelector.disk=ssd,tolerations[0].operator=Exists'
  --set 'topologySpreadConstraints[0].maxSkew=1,topologySpreadConstraints[0].topologyKey=zone'
  --set 'topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway,extraArgs[0]=--disable-flush-all')
least=(--set admin.enabled=false,podDisruptionBudget.enabled=false,antiAffinity=none,preStopSeconds=0,memory=64
  --set resources.limits=null)
for kubernetes_version in "${kubernetes[@]}"; do
  for set in default everything least; do
    flags=()
    [ "$set" != everything ] || flags=("${everything[@]}")
    [ "$set" != least ] || flags=("${least[@]}")
    helm lint --strict --quiet --kube-version "$kubernetes_version" "$chart" "${flags[@]}"
    rendered "$kubernetes_version" "${flags[@]}" >"$tools/$set.yaml"
    conforms "$kubernetes_version" <"$tools/$set.yaml"
  done
done
! sed 's/^  replicas:/  replica:/' "$tools/default.yaml" | conforms "${kubernetes[0]}" >/dev/null || fail "kubeconform accepts anything"
! sed 's/^  jobLabel:/  jobLabels:/' "$tools/everything.yaml" | conforms "${kubernetes[0]}" >/dev/null ||
  fail "kubeconform accepts any ServiceMonitor"

refuses /replicas --set replicas=0
refuses /replicas --set replicas=two
refuses /memory --set memory=lots
refuses /threads --set threads=0
refuses /antiAffinity --set antiAffinity=sometimes
refuses /tls/clientCertificates --set tls.clientCertificates=maybe
refuses /admin/port --set admin.port=80
refuses persistance --set persistance.enabled=true
refuses 'memory: auto needs' --set resources.limits=null
refuses 'metrics need admin' --set metrics.rules.enabled=true,admin.enabled=false

ci/image.sh --build-only
for flags in "" "persistence.enabled=true,users.secret=users,tls.secret=tls,resources.limits.memory=256Mi,drainSeconds=60"; do
  rendered "${kubernetes[1]}" ${flags:+--set "$flags"} >"$tools/pod.yaml"
  as_root unshare --mount --net /usr/bin/python3 ci/chart_session.py "$tools/pod.yaml" "$target/image/relativistd.tar"
done
/usr/bin/python3 ci/chart_session.py "$tools/everything.yaml" "$tools/default.yaml"
