{{/* Where records go: a URL, or a directory within the container. */}}
{{- define "tachoscope-agent.store" -}}
{{- $store := .Values.store -}}
{{- if $store.url -}}
{{- $store.url -}}
{{- else if or $store.existingClaim $store.hostPath -}}
/store
{{- else -}}
{{- printf "%s/store" .Values.state -}}
{{- end -}}
{{- end -}}

{{/* Whether each node has a store of its own, on its root disk or gone with the pod. */}}
{{- define "tachoscope-agent.storeIsOfTheNode" -}}
{{- $store := .Values.store -}}
{{- if not (or $store.url $store.existingClaim $store.hostPath) -}}true{{- end -}}
{{- end -}}

{{/* Whether what the agent writes is gone with its pod. */}}
{{- define "tachoscope-agent.storeIsLost" -}}
{{- if and (include "tachoscope-agent.storeIsOfTheNode" .) (not .Values.collectors.jobs.enabled) -}}true{{- end -}}
{{- end -}}

{{/* agent.yaml; what `config` says wins. */}}
{{- define "tachoscope-agent.config" -}}
{{- $with := .Values.collectors -}}
{{- $gpu := dict
  "enabled" $with.gpu.enabled
  "expected" (int $with.gpu.expected)
  "interval_seconds" $with.gpu.intervalSeconds
  "kernel_log" (ternary $with.kernelLog.path "" $with.kernelLog.enabled)
  "dcgm_url" (ternary $with.dcgm.url "" $with.dcgm.enabled)
  "dcgm_names" $with.dcgm.names
  "pod_resources" (ternary (printf "%s/kubelet.sock" $with.pods.directory) "" $with.pods.enabled)
-}}
{{- $config := dict
  "spool" .Values.spool
  "state" .Values.state
  "store" (include "tachoscope-agent.store" .)
  "address" .Values.address
  "port" (int .Values.port)
  "gpu" $gpu
  "profiles" (dict "enabled" (ne $with.profiles.sockets ""))
-}}
{{- with $with.profiles.sockets -}}{{- $_ := set $config.profiles "sockets" (list .) -}}{{- end -}}
{{- with $with.nccl.inspector -}}{{- $_ := set $config "nccl" (dict "inspector" (list .)) -}}{{- end -}}
{{- if $with.processes.enabled -}}{{- $_ := set $config "sys" "/host/sys" -}}{{- end -}}
{{- if .Values.webConfig.existingSecret -}}
{{- $_ := set $config "web_config" (printf "/etc/tachoscope-web/%s" .Values.webConfig.key) -}}
{{- end -}}
{{- /* Nothing removes what is old: samples of the metrics would fill the node's disk. */ -}}
{{- if include "tachoscope-agent.storeIsOfTheNode" . -}}{{- $_ := set $config "sample_seconds" 0 -}}{{- end -}}
{{- range .Values.config.servers -}}
{{- if not (or .node (regexMatch "^https?://(127\\.[0-9.]+[:/]|localhost[:/]|\\[::1\\])" .url)) -}}
{{- fail (printf "config.servers: each node's agent would read %s, so that sums count its requests once a node; give it `node`, the name of the one whose agent reads it" .url) -}}
{{- end -}}
{{- end -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) -}}
{{- end -}}

{{/* Ports outside of the pod that the agent calls: of the store, a dcgm-exporter, an OTLP receiver, inference servers, the cloud's metadata. */}}
{{- define "tachoscope-agent.egressPorts" -}}
{{- $urls := list -}}
{{- if hasPrefix "s3://" .Values.store.url -}}{{- $urls = append $urls (default "https://s3" .Values.store.s3.endpoint) -}}{{- end -}}
{{- if .Values.collectors.dcgm.enabled -}}{{- $urls = append $urls .Values.collectors.dcgm.url -}}{{- end -}}
{{- with .Values.config.preemption -}}
{{- if has .provider (list "aws" "gcp" "azure") -}}{{- $urls = append $urls (default "http://169.254.169.254" .url) -}}{{- end -}}
{{- end -}}
{{- with .Values.config.otlp -}}{{- $urls = append $urls .endpoint -}}{{- end -}}
{{- range .Values.config.servers -}}{{- $urls = append $urls .url -}}{{- end -}}
{{- $ports := list -}}
{{- range $urls -}}{{- $ports = append $ports (include "tachoscope-agent.portOf" . | int) -}}{{- end -}}
{{- dict "ports" ($ports | uniq) | toYaml -}}
{{- end -}}

{{/* The port of a URL. */}}
{{- define "tachoscope-agent.portOf" -}}
{{- $port := regexFind ":[0-9]+(/|$)" . | trimPrefix ":" | trimSuffix "/" -}}
{{- default (ternary "443" "80" (hasPrefix "https:" .)) $port -}}
{{- end -}}
