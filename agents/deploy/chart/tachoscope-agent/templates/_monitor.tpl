{{/* The monitor that is switched on, with the name of its list of endpoints and its values; nothing if none is. */}}
{{- define "tachoscope-agent.monitor" -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled -}}
{{- fail "podMonitor.enabled and serviceMonitor.enabled: Prometheus would scrape each pod twice; switch one of them off" -}}
{{- else if .Values.podMonitor.enabled -}}
{{- dict "kind" "PodMonitor" "endpoints" "podMetricsEndpoints" "values" .Values.podMonitor | toYaml -}}
{{- else if .Values.serviceMonitor.enabled -}}
{{- dict "kind" "ServiceMonitor" "endpoints" "endpoints" "values" .Values.serviceMonitor | toYaml -}}
{{- end -}}
{{- end -}}

{{/* How the monitor scrapes the pods of a name. `own`: relabelings that the chart needs there. */}}
{{- define "tachoscope-agent.endpoint" -}}
{{- $web := .root.Values.webConfig -}}
{{- $values := .monitor.values -}}
{{- $own := default list .own -}}
{{- if eq .monitor.kind "ServiceMonitor" -}}
{{- /*
The series of a PodMonitor, so that they go on when the kind is another. The job is its, by which alerts know agents and watch. Without
the Service's name as `service`: Prometheus would rename the label `service` of requests, and no rule of inference would find them.
*/ -}}
{{- $job := dict "action" "replace" "targetLabel" "job" "replacement" (printf "%s/%s" .root.Release.Namespace .name) -}}
{{- $own = concat $own (list $job (dict "action" "labeldrop" "regex" "service")) -}}
{{- end -}}
port: metrics
path: /metrics
scheme: {{ ternary "https" "http" (and (ne $web.existingSecret "") $web.tls) }}
interval: {{ $values.interval }}
scrapeTimeout: {{ $values.scrapeTimeout }}
honorLabels: false
{{- with $values.tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.authorization }}
authorization:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat $own $values.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
