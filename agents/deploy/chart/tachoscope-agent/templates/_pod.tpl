{{- define "tachoscope-agent.podSecurity" -}}
{{- $rights := include "tachoscope-agent.rights" . | fromYaml -}}
{{- if $rights.root -}}
runAsUser: 0
runAsGroup: 0
{{- else -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- with .Values.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* `capabilities` comes last: the agent's own may be added below. */}}
{{- define "tachoscope-agent.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "tachoscope-agent.s3Env" -}}
{{- $s3 := .Values.store.s3 -}}
{{- if $s3.existingSecret }}
{{- range list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" "AWS_SESSION_TOKEN" }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $s3.existingSecret }}, key: {{ . }}, optional: {{ eq . "AWS_SESSION_TOKEN" }}}}
{{- end }}
{{- end }}
{{- with $s3.endpoint }}
- name: AWS_ENDPOINT_URL_S3
  value: {{ . | quote }}
{{- end }}
{{- with $s3.region }}
- name: AWS_DEFAULT_REGION
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "tachoscope-agent.env" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
{{- with .Values.clusterName }}
- name: CLUSTER_NAME
  value: {{ . | quote }}
{{- end }}
{{- if has .Values.gpuAccess (list "runtimeClass" "env") }}
- name: NVIDIA_VISIBLE_DEVICES
  value: {{ ternary "/var/run/nvidia-container-devices" "all" .Values.visibleDevicesByMount }}
- name: NVIDIA_DRIVER_CAPABILITIES
  value: utility
{{- else }}
- name: NVIDIA_VISIBLE_DEVICES
  value: void
{{- end }}
{{- if .Values.collectors.mig.enabled }}
- name: NVIDIA_MIG_MONITOR_DEVICES
  value: all
{{- end }}
{{- if eq .Values.gpuAccess "hostPath" }}
- name: LD_LIBRARY_PATH
  value: /usr/local/nvidia/lib64
{{- end }}
{{ include "tachoscope-agent.s3Env" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The kubelet can neither log in nor show a certificate: with authentication it only looks whether the port is open. */}}
{{- define "tachoscope-agent.probe" -}}
{{- $web := .root.Values.webConfig -}}
{{- if and $web.existingSecret $web.authentication -}}
tcpSocket: {port: metrics}
{{- else -}}
httpGet:
  path: {{ .path }}
  port: metrics
  scheme: {{ ternary "HTTPS" "HTTP" (and (ne $web.existingSecret "") $web.tls) }}
{{- end -}}
{{- end -}}

{{- define "tachoscope-agent.probes" -}}
startupProbe:
  {{- include "tachoscope-agent.probe" (dict "root" . "path" "/healthz") | nindent 2 }}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  {{- include "tachoscope-agent.probe" (dict "root" . "path" "/healthz") | nindent 2 }}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  {{- include "tachoscope-agent.probe" (dict "root" . "path" "/readyz") | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}

{{- define "tachoscope-agent.mounts" -}}
{{- $with := .Values.collectors -}}
- {name: config, mountPath: /etc/tachoscope, readOnly: true}
- {name: spool, mountPath: {{ .Values.spool }}}
- {name: state, mountPath: {{ .Values.state }}}
- {name: tmp, mountPath: /tmp}
{{- if or .Values.store.existingClaim .Values.store.hostPath }}
- {name: store, mountPath: /store}
{{- end }}
{{- if .Values.webConfig.existingSecret }}
- {name: web-config, mountPath: /etc/tachoscope-web, readOnly: true}
{{- end }}
{{- if $with.pods.enabled }}
- {name: pod-resources, mountPath: {{ $with.pods.directory }}, readOnly: true}
{{- end }}
{{- if $with.processes.enabled }}
- {name: sys, mountPath: /host/sys, readOnly: true}
{{- end }}
{{- with $with.nccl.inspector }}
- {name: nccl-inspector, mountPath: {{ . }}}
{{- end }}
{{- with $with.profiles.sockets }}
- {name: profile-sockets, mountPath: {{ . }}}
{{- end }}
{{- if $with.kernelLog.enabled }}
- {name: kernel-log, mountPath: {{ $with.kernelLog.path }}, readOnly: true}
{{- end }}
{{- if eq .Values.gpuAccess "hostPath" }}
- {name: driver, mountPath: /usr/local/nvidia/lib64/libnvidia-ml.so.1, readOnly: true}
{{- end }}
{{- if .Values.visibleDevicesByMount }}
- {name: visible-devices, mountPath: /var/run/nvidia-container-devices/all, readOnly: true}
{{- end }}
{{- end -}}

{{- define "tachoscope-agent.volumes" -}}
{{- $with := .Values.collectors -}}
- name: config
  configMap: {name: {{ include "tachoscope-agent.fullname" . }}}
{{- if $with.jobs.enabled }}
- name: spool
  hostPath: {path: {{ .Values.spool }}, type: DirectoryOrCreate}
- name: state
  hostPath: {path: {{ .Values.state }}, type: DirectoryOrCreate}
{{- else }}
- name: spool
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: state
  emptyDir: {sizeLimit: 256Mi}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 16Mi}
{{- if .Values.store.existingClaim }}
- name: store
  persistentVolumeClaim: {claimName: {{ .Values.store.existingClaim }}}
{{- else if .Values.store.hostPath }}
- name: store
  hostPath: {path: {{ .Values.store.hostPath }}, type: Directory}
{{- end }}
{{- with .Values.webConfig.existingSecret }}
- name: web-config
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- if $with.pods.enabled }}
- name: pod-resources
  hostPath: {path: {{ $with.pods.directory }}, type: Directory}
{{- end }}
{{- if $with.processes.enabled }}
- name: sys
  hostPath: {path: /sys, type: Directory}
{{- end }}
{{- with $with.nccl.inspector }}
- name: nccl-inspector
  hostPath: {path: {{ . }}, type: DirectoryOrCreate}
{{- end }}
{{- with $with.profiles.sockets }}
- name: profile-sockets
  hostPath: {path: {{ . }}, type: DirectoryOrCreate}
{{- end }}
{{- if $with.kernelLog.enabled }}
- name: kernel-log
  hostPath: {path: {{ $with.kernelLog.path }}, type: CharDevice}
{{- end }}
{{- if eq .Values.gpuAccess "hostPath" }}
- name: driver
  hostPath: {path: {{ .Values.hostDriver.library }}, type: File}
{{- end }}
{{- if .Values.visibleDevicesByMount }}
- name: visible-devices
  hostPath: {path: /dev/null, type: CharDevice}
{{- end }}
{{- end -}}
