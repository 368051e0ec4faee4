{{- define "relativistd.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "relativistd.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "relativistd.labels" -}}
{{ include "relativistd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The arguments of the server. */}}
{{- define "relativistd.args" -}}
{{- $memory := dig "limits" "memory" "" .Values.resources }}
{{- if and (eq (toString .Values.memory) "auto") (not $memory) }}
{{- fail "memory: auto needs resources.limits.memory, or it would be a share of the whole node" }}
{{- end -}}
- --listen=*
- --port=11211
- --memory-limit={{ .Values.memory }}
- --threads={{ .Values.threads }}
- --conn-limit={{ int .Values.connections }}
- --max-item-size={{ .Values.maxItemSize }}
- --drain={{ .Values.drainSeconds }}
- --log-format=json
{{- range until (int .Values.verbosity) }}
- --verbose
{{- end }}
{{- if .Values.admin.enabled }}
- --admin={{ .Values.admin.address }}:{{ .Values.admin.port }}
{{- end }}
{{- if .Values.persistence.enabled }}
- --snapshot=/data/items
{{- end }}
{{- if .Values.users.secret }}
- --auth-file=/etc/relativistd/users/users
{{- end }}
{{- if .Values.tls.secret }}
- --enable-ssl
- --extended=ssl_chain_cert=/etc/relativistd/tls/tls.crt,ssl_key=/etc/relativistd/tls/tls.key
{{- with get (dict "optional" 1 "required" 2) .Values.tls.clientCertificates }}
- --extended=ssl_ca_cert=/etc/relativistd/tls/ca.crt,ssl_verify_mode={{ . }}
{{- end }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* A probe of a path of --admin. Without --admin it connects: the server listens only while it serves. */}}
{{- define "relativistd.probe" -}}
{{- if .admin -}}
httpGet: {path: {{ .path }}, port: admin}
{{- else -}}
tcpSocket: {port: memcached}
{{- end }}
{{- end }}
