{{- define "quire.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "quire.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "quire.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "quire.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "quire.router" -}}{{ include "quire.fullname" . }}-router{{- end -}}
{{- define "quire.worker" -}}{{ include "quire.fullname" . }}-worker{{- end -}}

{{- define "quire.selector" -}}
app.kubernetes.io/name: {{ include "quire.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quire.labels" -}}
{{ include "quire.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name of the worker's image. */}}
{{- define "quire.worker.repository" -}}
{{- default (ternary "quire-worker-cuda" "quire-worker" (eq .Values.worker.device "cuda")) .Values.worker.image.repository -}}
{{- end -}}

{{/* A list of the root and an image's values: its full reference. */}}
{{- define "quire.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := printf "%s/%s" $root.Values.image.registry $image.repository | trimPrefix "/" -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ default $root.Chart.AppVersion $image.tag }}
{{- end -}}
{{- end -}}

{{/* HOST:PORT of a list of host and port, with the brackets that IPv6 needs. */}}
{{- define "quire.address" -}}
{{- $host := index . 0 -}}
{{- if contains ":" $host }}[{{ $host }}]{{ else }}{{ $host }}{{ end }}:{{ int (index . 1) }}
{{- end -}}

{{- define "quire.router.serviceAccount" -}}
{{- default (include "quire.router" .) .Values.router.serviceAccount.name -}}
{{- end -}}

{{- define "quire.worker.serviceAccount" -}}
{{- default (include "quire.worker" .) .Values.worker.serviceAccount.name -}}
{{- end -}}

{{/* How long a pod may take to end: the time for its hook and its drain, or the value that is set. */}}
{{- define "quire.router.graceNeeded" -}}
{{- add .Values.router.preStopSeconds .Values.router.drainDelaySeconds .Values.router.drainTimeoutSeconds 5 -}}
{{- end -}}

{{- define "quire.router.grace" -}}
{{- if kindIs "invalid" .Values.router.terminationGracePeriodSeconds -}}
{{- include "quire.router.graceNeeded" . -}}
{{- else -}}
{{- int .Values.router.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{- define "quire.worker.graceNeeded" -}}
{{- add .Values.worker.preStopSeconds (max .Values.worker.drainTimeoutSeconds .Values.worker.drainHardLimitSeconds) 5 -}}
{{- end -}}

{{- define "quire.worker.grace" -}}
{{- if kindIs "invalid" .Values.worker.terminationGracePeriodSeconds -}}
{{- include "quire.worker.graceNeeded" . -}}
{{- else -}}
{{- int .Values.worker.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}

{{/* Whether routers and workers use certificates, and the Secrets that hold them. */}}
{{- /* The paths that an Ingress or a gateway routes to routers: not /metrics, which names tenants, nor probes; /fleet where `fleet` is true. */ -}}
{{- define "quire.published" -}}
- {path: /, type: Exact}
- {path: /page.css, type: Exact}
- {path: /page.js, type: Exact}
- {path: /chat.js, type: Exact}
- {path: /markdown.js, type: Exact}
- {path: /v1, type: Prefix}
- {path: /openai, type: Prefix}
- {path: /v2, type: Prefix}
- {path: /api, type: Prefix}
- {path: /tokenize, type: Exact}
- {path: /detokenize, type: Exact}
- {path: /tokenizer_info, type: Prefix}
- {path: /version, type: Exact}
- {path: /health, type: Exact}
{{- if .fleet }}
- {path: /fleet, type: Exact}
{{- end }}
{{- end -}}

{{- define "quire.grpcServices" -}}
[quire.v1.Inference, inference.GRPCInferenceService, grpc.health.v1.Health, grpc.reflection.v1alpha.ServerReflection, grpc.reflection.v1.ServerReflection]
{{- end -}}

{{- define "quire.workerTLS" -}}
{{- if or .Values.demo (ne .Values.workerTLS.mode "none") }}true{{ end -}}
{{- end -}}

{{- define "quire.routerCertificate" -}}
{{- if and (eq .Values.workerTLS.mode "secret") (not .Values.demo) -}}
{{- .Values.workerTLS.existingSecrets.router -}}
{{- else -}}
{{- include "quire.router" . }}-worker-tls
{{- end -}}
{{- end -}}

{{- define "quire.workerCertificate" -}}
{{- if and (eq .Values.workerTLS.mode "secret") (not .Values.demo) -}}
{{- .Values.workerTLS.existingSecrets.worker -}}
{{- else -}}
{{- include "quire.worker" . }}-tls
{{- end -}}
{{- end -}}

{{- define "quire.keySecret" -}}
{{- if .Values.demo -}}
{{- include "quire.fullname" . }}-demo-keys
{{- else -}}
{{- .Values.apiKeys.existingSecret -}}
{{- end -}}
{{- end -}}

{{- define "quire.modelPath" -}}
{{- if eq .Values.model.source.type "builtIn" -}}
/usr/share/quire/models/demo
{{- else if eq .Values.model.source.type "name" -}}
{{ .Values.model.source.name.reference }}
{{- else if .Values.model.path -}}
/models/{{ .Values.model.path }}
{{- else -}}
/models
{{- end -}}
{{- end -}}

{{/* Where models that were pulled are kept: the init container writes there, and the worker finds its model there. */}}
{{- define "quire.pulledModels" -}}
- name: HF_HUB_CACHE
  value: /models/hub
- name: XDG_CACHE_HOME
  value: /models/cache
{{- end -}}

{{/* The name that clients use for the model; if there are several, the first. */}}
{{- define "quire.modelName" -}}
{{- if .Values.model.servedNames -}}
{{- first .Values.model.servedNames -}}
{{- else -}}
{{- base (include "quire.modelPath" .) | trimSuffix ".gguf" -}}
{{- end -}}
{{- end -}}

{{- define "quire.gpus" -}}
{{- if eq .Values.worker.device "cuda" }}{{ int .Values.worker.tensorParallelSize }}{{ else }}0{{ end -}}
{{- end -}}

{{- define "quire.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "quire.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Probes of a list of port name, ready path, start path, seconds to start, and scheme. */}}
{{- define "quire.probes" -}}
startupProbe:
  httpGet:
    path: {{ index . 2 }}
    port: {{ index . 0 }}
    scheme: {{ index . 4 }}
  periodSeconds: 2
  failureThreshold: {{ max 1 (div (int (index . 3)) 2) }}
readinessProbe:
  httpGet:
    path: {{ index . 1 }}
    port: {{ index . 0 }}
    scheme: {{ index . 4 }}
  periodSeconds: 2
  timeoutSeconds: 1
  failureThreshold: 2
livenessProbe:
  httpGet:
    path: /livez
    port: {{ index . 0 }}
    scheme: {{ index . 4 }}
  periodSeconds: 10
  timeoutSeconds: 2
  failureThreshold: 6
{{- end -}}
