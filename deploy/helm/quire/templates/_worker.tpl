{{/* The pod of a worker: of a StatefulSet, or of a group of a LeaderWorkerSet. */}}
{{- define "quire.worker.pod" -}}
{{- $w := .Values.worker }}
{{- $tls := include "quire.workerTLS" . }}
{{- $source := .Values.model.source }}
{{- $gpus := int (include "quire.gpus" .) -}}
metadata:
  labels:
    {{- include "quire.labels" . | nindent 4 }}
    app.kubernetes.io/component: worker
    {{- with $w.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $w.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "quire.worker.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "quire.worker.grace" . }}
  securityContext:
    {{- include "quire.podSecurity" . | nindent 4 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $w.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $w.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $w.tolerations }}
  tolerations:
    {{- toYaml $w.tolerations | nindent 4 }}
  {{- else if $gpus }}
  tolerations:
    - key: {{ $w.gpuResource }}
      operator: Exists
      effect: NoSchedule
  {{- end }}
  {{- with $w.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if $w.topologySpreadConstraints }}
    {{- toYaml $w.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "quire.selector" . | nindent 10 }}
          app.kubernetes.io/component: worker
    {{- end }}
  {{- if eq $source.type "oci" }}
  initContainers:
    - name: model
      image: {{ $source.oci.image }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [cp, -R, {{ trimSuffix "/" $source.oci.path }}/., /to/]
      resources:
        requests:
          cpu: 100m
          memory: 64Mi
        limits:
          memory: 1Gi
      securityContext:
        {{- include "quire.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - name: model
          mountPath: /to
  {{- else if eq $source.type "name" }}
  initContainers:
    - name: model
      image: {{ include "quire.image" (list . (merge (dict "repository" (include "quire.worker.repository" .)) $w.image)) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      {{- /* As the worker does it: what is on the claim needs no hub. */}}
      command: [/usr/local/bin/quire, pull, --for-worker, --, {{ $source.name.reference | quote }}]
      env:
        {{- include "quire.pulledModels" . | nindent 8 }}
        {{- with $w.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $source.name.existingSecret }}
      envFrom:
        - secretRef:
            name: {{ . }}
      {{- end }}
      resources:
        requests:
          cpu: 500m
          memory: 256Mi
        limits:
          memory: 1Gi
      securityContext:
        {{- include "quire.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - name: model
          mountPath: /models
        - name: tmp
          mountPath: /tmp
  {{- end }}
  containers:
    - name: worker
      image: {{ include "quire.image" (list . (merge (dict "repository" (include "quire.worker.repository" .)) $w.image)) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      command: [/usr/local/bin/quire-worker]
      args:
        {{- include "quire.worker.args" . | nindent 8 }}
      {{- if or $w.extraEnv (eq $source.type "name") }}
      env:
        {{- if eq $source.type "name" }}
        {{- include "quire.pulledModels" . | nindent 8 }}
        {{- end }}
        {{- with $w.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      ports:
        - name: wire
          containerPort: {{ $w.port }}
        - name: probes
          containerPort: {{ $w.probePort }}
      {{- /* /health: a step ended within 10 s, so a token can be produced now. */}}
      {{- include "quire.probes" (list "probes" "/health" "/readyz" $w.startupSeconds "HTTP") | nindent 6 }}
      {{- if $w.preStopSeconds }}
      lifecycle:
        preStop:
          sleep:
            seconds: {{ $w.preStopSeconds }}
      {{- end }}
      resources:
        {{- with $w.resources.requests }}
        requests:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- $limits := default dict $w.resources.limits }}
        {{- if $gpus }}
        {{- $limits = merge (dict $w.gpuResource (toString $gpus)) $limits }}
        {{- end }}
        {{- with $limits }}
        limits:
          {{- toYaml . | nindent 10 }}
        {{- end }}
      securityContext:
        {{- include "quire.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- if ne $source.type "builtIn" }}
        - name: model
          mountPath: /models
          readOnly: true
        {{- end }}
        {{- if $tls }}
        - name: tls
          mountPath: /etc/quire/tls
          readOnly: true
        {{- end }}
        {{- if gt $gpus 1 }}
        - name: shared-memory
          mountPath: /dev/shm
        {{- end }}
        - name: tmp
          mountPath: /tmp
        {{- with $w.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- if eq $source.type "pvc" }}
    - name: model
      persistentVolumeClaim:
        claimName: {{ $source.pvc.claimName }}
        readOnly: true
    {{- else if eq $source.type "image" }}
    - name: model
      image:
        reference: {{ $source.image.reference }}
        pullPolicy: {{ $source.image.pullPolicy }}
    {{- else if eq $source.type "oci" }}
    - name: model
      emptyDir:
        sizeLimit: {{ $source.oci.sizeLimit }}
    {{- else if eq $source.type "name" }}
    - name: model
      {{- if $source.name.claimName }}
      persistentVolumeClaim:
        claimName: {{ $source.name.claimName }}
      {{- else }}
      emptyDir:
        sizeLimit: {{ $source.name.sizeLimit }}
      {{- end }}
    {{- end }}
    {{- if $tls }}
    - name: tls
      secret:
        secretName: {{ include "quire.workerCertificate" . }}
        defaultMode: 0440
    {{- end }}
    {{- if gt $gpus 1 }}
    - name: shared-memory
      emptyDir:
        medium: Memory
        sizeLimit: {{ $w.sharedMemory }}
    {{- end }}
    - name: tmp
      emptyDir:
        sizeLimit: 64Mi
    {{- with $w.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "quire.worker.args" -}}
{{- $w := .Values.worker -}}
- {{ printf "--model=%s" (include "quire.modelPath" .) | quote }}
{{- range .Values.model.servedNames }}
- {{ printf "--served-model-name=%s" . | quote }}
{{- end }}
- {{ printf "--listen=%s" (include "quire.address" (list $w.host $w.port)) | quote }}
- --http-port={{ $w.probePort }}
{{- if include "quire.workerTLS" . }}
- --tls-ca-file=/etc/quire/tls/ca.crt
- --tls-cert-file=/etc/quire/tls/tls.crt
- --tls-key-file=/etc/quire/tls/tls.key
{{- range .Values.workerTLS.routerNames }}
- --tls-router-name={{ . }}
{{- end }}
{{- else }}
- --insecure
{{- end }}
- --device={{ $w.device }}
{{- if gt (int $w.tensorParallelSize) 1 }}
- --tensor-parallel-size={{ int $w.tensorParallelSize }}
{{- end }}
{{- if $w.maxModelLen }}
- --max-model-len={{ int $w.maxModelLen }}
{{- end }}
- --max-num-seqs={{ int $w.maxNumSeqs }}
- --max-num-batched-tokens={{ int $w.maxNumBatchedTokens }}
{{- if not (kindIs "invalid" $w.maxStepTimeMs) }}
- --max-step-time-ms={{ int $w.maxStepTimeMs }}
{{- end }}
{{- if $w.blockSize }}
- --block-size={{ int $w.blockSize }}
{{- end }}
{{- if or $w.adapters.modules $w.adapters.dir }}
- --enable-lora
- --max-loras={{ int (coalesce $w.adapters.maxLoras (ternary 8 (len $w.adapters.modules) (not (empty $w.adapters.dir)))) }}
- --max-lora-rank={{ int $w.adapters.maxRank }}
{{- with $w.adapters.dir }}
- {{ printf "--lora-dir=%s" . | quote }}
{{- end }}
{{- range $name, $folder := $w.adapters.modules }}
- {{ printf "--lora-modules=%s=%s" $name $folder | quote }}
{{- end }}
{{- end }}
{{- if $w.kvCacheMemory }}
- --kv-cache-memory-bytes={{ $w.kvCacheMemory }}
{{- end }}
{{- if not $w.enablePrefixCaching }}
- --no-enable-prefix-caching
{{- end }}
{{- if $w.threads }}
- --threads={{ int $w.threads }}
{{- end }}
- --scheduling-policy={{ $w.schedulingPolicy }}
- --drain-timeout={{ int $w.drainTimeoutSeconds }}s
- --drain-hard-limit={{ int $w.drainHardLimitSeconds }}s
- --log-level={{ $w.logLevel }}
- --log-format=json
{{- with $w.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}
