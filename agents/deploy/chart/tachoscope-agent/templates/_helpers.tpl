{{- define "tachoscope-agent.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tachoscope-agent.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tachoscope-agent.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "tachoscope-agent.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Of the watch: other than the agents' selector, so that no rule for the one is for the other. */}}
{{- define "tachoscope-agent.watchSelector" -}}
app.kubernetes.io/name: {{ printf "%s-watch" (default .Chart.Name .Values.nameOverride | trunc 57 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tachoscope-agent.watchLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "tachoscope-agent.watchSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "tachoscope-agent.storeSelector" -}}
app.kubernetes.io/name: {{ printf "%s-store" (default .Chart.Name .Values.nameOverride | trunc 57 | trimSuffix "-") }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tachoscope-agent.storeLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "tachoscope-agent.storeSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* What a pod that only reads and writes the store may reach. */ -}}
{{- define "tachoscope-agent.storeEgress" -}}
{{- if hasPrefix "s3://" .Values.store.url -}}
egress:
  - ports:
      {{- range $port := list 53 5353 }}
      {{- range $protocol := list "UDP" "TCP" }}
      - port: {{ $port }}
        protocol: {{ $protocol }}
      {{- end }}
      {{- end }}
      - port: {{ include "tachoscope-agent.portOf" (default "https://s3" .Values.store.s3.endpoint) }}
        protocol: TCP
{{- else -}}
egress: []
{{- end -}}
{{- end -}}

{{- define "tachoscope-agent.serviceAccount" -}}
{{- default (ternary (include "tachoscope-agent.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "tachoscope-agent.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The value at a dotted path of values.yaml; a path from / is itself. */}}
{{- define "tachoscope-agent.value" -}}
{{- $found := .values -}}
{{- if hasPrefix "/" .path -}}
{{- $found = .path -}}
{{- else -}}
{{- range splitList "." .path -}}{{- $found = index $found . -}}{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* The rights of the pod: those of all parts of privileges.yaml that are switched on. */}}
{{- define "tachoscope-agent.rights" -}}
{{- $root := false -}}{{- $privileged := false -}}{{- $hostPID := false -}}{{- $hostNetwork := false -}}{{- $capabilities := list -}}
{{- $values := .Values -}}
{{- range (.Files.Get "privileges.yaml" | fromYaml).parts -}}
{{- $set := "true" -}}
{{- with .switch -}}{{- $set = include "tachoscope-agent.value" (dict "values" $values "path" .) -}}{{- end -}}
{{- $is := default (list "true") .is -}}
{{- if or (has $set $is) (and (has "set" $is) (ne $set "")) -}}
{{- $root = or $root (default false .root) -}}
{{- $privileged = or $privileged (default false .privileged) -}}
{{- $hostPID = or $hostPID (default false .host_pid) -}}
{{- $hostNetwork = or $hostNetwork (default false .host_network) -}}
{{- $capabilities = concat $capabilities (default list .capabilities) -}}
{{- end -}}
{{- end -}}
{{- dict "root" $root "privileged" $privileged "hostPID" $hostPID "hostNetwork" $hostNetwork "capabilities" $capabilities | toYaml -}}
{{- end -}}
